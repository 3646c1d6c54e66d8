"""Commands that use a scheduler: demo, simulate, shadow, dashboard, check-extender."""
