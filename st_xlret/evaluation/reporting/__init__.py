"""Tables, plots, published results, and how results reach the host."""
