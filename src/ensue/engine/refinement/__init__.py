"""What an event was, learned from its context: counting, models, and coarse events as alternatives."""
