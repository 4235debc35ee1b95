"""Word-positioned samples: dictionaries, and finding their words in parallel sentences."""
