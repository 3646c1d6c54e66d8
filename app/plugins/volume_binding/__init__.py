"""VolumeBinding: filters nodes by a pod's volumes, binds and provisions them (docs/spec/plugins/volume-binding.md).

``plugin`` has the extension points. ``claims`` sorts a pod's claims. ``finding`` evaluates nodes, with ``matching``
(existing volumes), ``provisioning`` and ``volume_topology``. ``reservation`` assumes and
writes what was chosen, and waits until it is bound.
"""

from app.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
