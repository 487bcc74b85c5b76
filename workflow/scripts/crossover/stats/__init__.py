"""Statistics of a comparison: the ratio of two arms at each level, and between the levels."""
