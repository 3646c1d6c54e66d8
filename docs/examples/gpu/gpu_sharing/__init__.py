"""Scheduler plugins for shared GPUs; see docs/gpu.md."""
