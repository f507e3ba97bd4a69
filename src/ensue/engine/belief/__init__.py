"""Probabilistic state: the belief of each key, updated by events."""
