"""Files of JSON lines, JSON lists and tables, and the Arrow cache of what they hold."""
