"""Embeddings: description, candidates, memory, and the function of a call."""
