"""NodeUnschedulable, one node at a time (docs/spec/plugins/node-unschedulable.md)."""

from app.model.objects import Taint
from app.model.status import Code
from tests.core.plugins.twins.taints import untolerated

CORDON = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")


def filter_node(pod, scene):
    if scene.node.spec.unschedulable and untolerated(
        [CORDON], pod.spec.tolerations, {"NoSchedule"}
    ):
        return Code.UnschedulableAndUnresolvable, ("node(s) were unschedulable",)
    return None
