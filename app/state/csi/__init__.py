"""CSI volumes and their limits by row of the node table: what NodeVolumeLimits and VolumeBinding look up.

See docs/spec/plugins/node-volume-limits.md.
"""
