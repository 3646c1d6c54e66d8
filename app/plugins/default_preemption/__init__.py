"""DefaultPreemption: when no node is feasible, evicts pods of lower priority (docs/spec/preemption.md)."""

from app.plugins.default_preemption.plugin import DefaultPreemption

__all__ = ("DefaultPreemption",)
