"""Tables, plots, published rows and the base of the evaluators' results."""
