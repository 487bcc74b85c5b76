"""The life of a server: start, readiness, stop, and the proof that nothing is left."""
