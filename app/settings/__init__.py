"""KubeSchedulerConfiguration and what this scheduler adds to it: read, checked, and handed on as plain values."""
