"""NodePorts, one node at a time (docs/spec/plugins/node-ports.md)."""

from app.model.status import Code


def claims(pod):
    sidecars = [c for c in pod.spec.init_containers or () if c.restart_policy == "Always"]
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)
        for container in [*sidecars, *pod.spec.containers]
        for port in container.ports or ()
        if port.host_port > 0
    ]


def skips(pod):
    return not claims(pod)


def filter_node(pod, scene):
    for ip, protocol, port in claims(pod):
        for used_ip, used_protocol, used_port in in_use(scene):
            same = (protocol, port) == (used_protocol, used_port)
            if same and (ip == used_ip or "0.0.0.0" in (ip, used_ip)):
                reason = "node(s) didn't have free ports for the requested pod ports"
                return Code.Unschedulable, (reason,)
    return None


def in_use(scene):
    """A port is forgotten with the first pod that is imagined away, whoever else claims it."""
    ports = {claim for pod in scene.before for claim in claims(pod)}
    for pod, added in scene.moves:
        if added:
            ports |= set(claims(pod))
        else:
            ports -= set(claims(pod))
    return ports
