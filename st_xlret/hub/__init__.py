"""Models as others use them: loaded, of built-in modules, with a card, uploaded."""
