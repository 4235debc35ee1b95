"""Questions with the passages that answer them, in the formats in which they are published."""
