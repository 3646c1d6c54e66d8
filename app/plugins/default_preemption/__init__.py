"""DefaultPreemption: when no node will do, evict pods of lower priority (spec: plugins.md 2.16, service.md 3)."""

from app.plugins.default_preemption.plugin import DefaultPreemption

__all__ = ("DefaultPreemption",)
