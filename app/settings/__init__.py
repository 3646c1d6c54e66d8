"""Reads and validates KubeSchedulerConfiguration and this scheduler's additions, and converts them to plain values."""
