"""Queries in Python. They create the same nodes as query text."""
