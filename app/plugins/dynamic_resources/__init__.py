"""DynamicResources: places pods on nodes with the devices that their ResourceClaims request.

See KEP-4381, docs/spec/plugins/dynamic-resources.md.

``plugin`` has the extension points. ``pod_claims`` knows the claims of a pod, ``filtering`` judges and scores nodes,
``binding`` writes claims, and waits for their devices (``conditions``). ``extended_resources`` makes claims for
extended resources.

The ``allocator`` searches once per kind of node. ``inventory`` and ``pools`` say which devices a node sees, ``query``
what requests need of devices, ``search`` finds devices within ``constraints``, ``capacity`` and the time ``budget``,
and ``results`` turns them into AllocationResults.
"""

from app.plugins.dynamic_resources.plugin import DynamicResources

__all__ = ["DynamicResources"]
