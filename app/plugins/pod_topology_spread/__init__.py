"""PodTopologySpread: spreads matching pods evenly over topology domains.

See docs/spec/plugins/pod-topology-spread.md.
"""

from app.plugins.pod_topology_spread.plugin import (
    ERR_REASON_CONSTRAINTS_NOT_MATCH,
    ERR_REASON_NODE_LABEL_NOT_MATCH,
    PodTopologySpread,
)

__all__ = (
    "ERR_REASON_CONSTRAINTS_NOT_MATCH",
    "ERR_REASON_NODE_LABEL_NOT_MATCH",
    "PodTopologySpread",
)
