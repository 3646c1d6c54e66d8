"""NodeDeclaredFeatures, one node at a time (docs/spec/plugins/node-declared-features.md)."""

from app.model.status import Code


def required(pod):
    features = set()
    for container in [*(pod.spec.init_containers or ()), *pod.spec.containers]:
        for rule in container.restart_policy_rules or ():
            if rule.action == "RestartAllContainers":
                features.add("RestartAllContainersOnContainerExits")
    if pod.spec.host_network is True and pod.spec.host_users is False:
        features.add("UserNamespacesHostNetworkSupport")
    return features


def filter_node(pod, scene):
    if required(pod) <= set(scene.node.status.declared_features or ()):
        return None
    return Code.UnschedulableAndUnresolvable, ("node(s) didn't match Pod's required features",)
