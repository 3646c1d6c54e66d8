"""The embedded cluster: a Kubernetes API server in one process, with kubelets that run no containers.

It serves the REST API over plain HTTP for the kinds that a scheduler reads and writes, well enough for kubectl and
client libraries. Nothing is persistent, and every request is authorised. From the bottom up::

    clock, store         time; objects, revisions, history
    resources/           the kinds, and what is special about each; deletion, binding and eviction
    errors, objects      what all answers and all objects have in common
    selectors, listing   reading
    patches/             writing a part
    api                  the verbs, without HTTP
    http/                paths, media types, tables, watches: how clients see it
    controllers/         controllers, those of workloads among them, and kubelets that run no containers
    cluster              all of it together
"""

from app.sim.cluster import ClusterOptions, EmbeddedCluster, serve
from app.sim.controllers.kubelet import RUN_FOR, KubeletOptions
from app.sim.http.faults import Fault
from app.sim.http.server import UnsentCall, WatchLimits
from app.sim.manifests import ManifestError
from app.sim.nodes import NodeOptions

__all__ = [
    "RUN_FOR",
    "ClusterOptions",
    "EmbeddedCluster",
    "Fault",
    "KubeletOptions",
    "ManifestError",
    "NodeOptions",
    "UnsentCall",
    "WatchLimits",
    "serve",
]
