"""Probabilistic state: what is believed of each key, as events come."""
