"""Queries in Python, equal in power to query text: the same values come out."""
