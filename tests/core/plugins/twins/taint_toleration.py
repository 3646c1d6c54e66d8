"""TaintToleration, one node at a time (docs/spec/plugins/taint-toleration.md)."""

from app.model.status import Code
from tests.core.plugins.twins.taints import untolerated


def filter_node(pod, scene):
    if untolerated(scene.node.spec.taints, pod.spec.tolerations, {"NoSchedule", "NoExecute"}):
        return Code.UnschedulableAndUnresolvable, ("node(s) had untolerated taint(s)",)
    return None


def score_node(pod, scene):
    tolerations = [t for t in pod.spec.tolerations or () if t.effect in ("", "PreferNoSchedule")]
    return len(untolerated(scene.node.spec.taints, tolerations, {"PreferNoSchedule"}))


def normalize(scores):
    highest = max([0, *scores])
    return [100 - (100 * score // highest if highest else 0) for score in scores]
