"""Models as others use them: loaded, exported to built-in modules, described by a card, uploaded."""
