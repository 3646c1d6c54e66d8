"""CSI volumes and their limits by row of the node table, for NodeVolumeLimits and VolumeBinding.

See docs/spec/plugins/node-volume-limits.md.
"""
