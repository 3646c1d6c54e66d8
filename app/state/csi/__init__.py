"""CSI volumes and their limits by row of the node table: what NodeVolumeLimits and VolumeBinding look up (spec: plugins.md 2.11)."""
