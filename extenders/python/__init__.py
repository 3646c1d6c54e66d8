"""A sample extender in Python."""
