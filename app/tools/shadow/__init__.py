"""Stands beside the scheduler of a cluster, writes nothing, and says where it would have decided otherwise."""
