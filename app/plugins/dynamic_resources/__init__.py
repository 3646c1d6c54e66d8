"""DynamicResources: pods go where the devices are that their claims ask for.

See KEP-4381, docs/spec/plugins/dynamic-resources.md.

``plugin`` has the extension points, ``hints`` what wakes pods, ``pod_claims`` which claims a pod has. The rest is for pods that have
some: ``work`` ties it together, ``attempt`` is what is remembered from one point to the next, ``filtering`` judges nodes with the
``allocator``, ``binding`` writes claims, ``waiting`` waits for their devices, ``extended`` makes claims of extended resources.

The allocator searches once per kind of node: ``inventory`` says which pools a row sees, ``query`` what a request asks of devices,
``search`` tries them one after the other under ``constraints``, ``counters`` and ``capacity``.
"""

from app.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
