"""Questions with passages in the formats in which they are published."""
