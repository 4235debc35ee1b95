"""A calibration of stored vectors, and what judged queries find among them."""
