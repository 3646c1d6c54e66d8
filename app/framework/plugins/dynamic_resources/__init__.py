"""DynamicResources: pods go where the devices are that their claims ask for (KEP-4381, spec: plugins.md 2.20)."""

from app.framework.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
