"""Word-positioned samples: dictionaries, and their words in parallel sentences."""
