"""The words, topics and sentence patterns of the generated corpus, as tables."""
