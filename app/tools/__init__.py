"""Commands that use a scheduler: demo, simulate, check-extender."""
