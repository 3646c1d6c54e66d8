"""Two plugins for aiokube-scheduler, explained in its docs/plugins.md."""
