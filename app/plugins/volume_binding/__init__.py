"""VolumeBinding: pods go where their volumes are, or can be bound or made (docs/spec/plugins/volume-binding.md).

``claims`` sorts a pod's claims, ``finding`` judges nodes (with ``reach``, ``matching`` and ``provisioning``),
``reservation`` sets aside what was chosen and writes it, ``waiting`` waits until it is bound; ``plugin`` ties them
together.
"""

from app.plugins.volume_binding.plugin import VolumeBinding

__all__ = ["VolumeBinding"]
