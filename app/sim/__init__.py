"""The embedded cluster: a Kubernetes API server in one process, with kubelets that only pretend.

It speaks the REST API over plain HTTP for the kinds that a scheduler reads and writes, well enough for kubectl and
client libraries. Nothing is persistent, everything is allowed. From the bottom up::

    kinds, clock, errors, validation ...  what there is, and the rules
    store                                 objects, revisions, history
    selectors, listing, watch             reading
    strategy, defaults, merge patches     writing
    api, deletion, binding, eviction      the verbs, without HTTP
    representation, tables, discovery     how clients see it
    handlers, server                      HTTP
    kubelet, disruption, volumes ...      the parties that pretend
    cluster                               all of it together
"""

from app.sim.cluster import ClusterOptions, EmbeddedCluster, serve
from app.sim.http.faults import Fault
from app.sim.http.server import WatchLimits
from app.sim.manifests import ManifestError
from app.sim.parties.kubelet import RUN_FOR, KubeletOptions
from app.sim.parties.nodes import NodeOptions

__all__ = [
    "RUN_FOR",
    "ClusterOptions",
    "EmbeddedCluster",
    "Fault",
    "KubeletOptions",
    "ManifestError",
    "NodeOptions",
    "WatchLimits",
    "serve",
]
