"""NodeName, one node at a time (docs/spec/plugins/node-name.md)."""

from app.model.status import Code


def filter_node(pod, scene):
    if pod.node_name in ("", scene.node.name):
        return None
    return Code.UnschedulableAndUnresolvable, ("node(s) didn't match the requested node name",)
