"""The scheduling cycle: decides, assumes and commits, without I/O."""
