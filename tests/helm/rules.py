"""Rules beyond the schema: what refers to something finds it, and pods are as restricted as they can be."""

import re
from collections.abc import Iterator
from typing import Any, Final

from tests.helm.chart import NAMESPACE, Object, Rendered, named

_DNS_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_VALUE: Final = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_CLUSTER_SCOPED: Final = frozenset({"ClusterRole", "ClusterRoleBinding"})
_RBAC: Final = frozenset({"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"})
_VOLUMES: Final = frozenset(
    {"configMap", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected"}
    | {"secret", "csi"}
)


def broken_references(rendered: Rendered) -> list[str]:
    """What does not fit together."""
    return [
        *_metadata(rendered),
        *_selectors(rendered),
        *_rights(rendered),
        *(said for whose, spec in rendered.pod_specs() for said in _pod(whose, spec)),
    ]


def _metadata(rendered: Rendered) -> Iterator[str]:
    seen = set()
    for each in rendered.objects:
        kind, metadata = each["kind"], each["metadata"]
        if ("namespace" in metadata) == (kind in _CLUSTER_SCOPED):
            yield f"{kind}: namespace {metadata.get('namespace')}"
        if kind not in _RBAC and not _DNS_NAME.fullmatch(metadata["name"]):
            yield f"{kind}: {metadata['name']} is no name"
        for label, value in metadata["labels"].items():
            if not _LABEL_VALUE.fullmatch(value):
                yield f"{kind}: label {label}: {value}"
        key = (kind, metadata.get("namespace"), metadata["name"])
        if key in seen:
            yield f"{kind}: {metadata['name']} occurs twice"
        seen.add(key)


def _selectors(rendered: Rendered) -> Iterator[str]:
    labels = rendered.deployment["template"]["metadata"]["labels"]
    chosen = {
        "Deployment": lambda spec: spec["selector"]["matchLabels"],
        "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
        "NetworkPolicy": lambda spec: spec["podSelector"]["matchLabels"],
        "Service": lambda spec: spec["selector"],
    }
    for kind, selector in chosen.items():
        for each in rendered.all(kind):
            if not selector(each["spec"]).items() <= labels.items():
                yield f"{kind} does not select the pods"
            for pod in rendered.all("Pod"):
                if selector(each["spec"]).items() <= pod["metadata"]["labels"].items():
                    yield f"{kind} selects pod {pod['metadata']['name']}"
    for monitor in rendered.all("ServiceMonitor"):
        service = rendered.one("Service")
        wanted = monitor["spec"]["selector"]["matchLabels"]
        if not wanted.items() <= service["metadata"]["labels"].items():
            yield "ServiceMonitor does not select the service"
        for endpoint in monitor["spec"]["endpoints"]:
            named(service["spec"]["ports"], endpoint["port"])
    for service in rendered.all("Service"):
        for port in service["spec"]["ports"]:
            named(rendered.container["ports"], port["targetPort"])


def _rights(rendered: Rendered) -> Iterator[str]:
    account = rendered.pod["serviceAccountName"]
    roles = {("ClusterRole", None, "system:auth-delegator")} | {
        (each["kind"], each["metadata"].get("namespace"), each["metadata"]["name"])
        for each in rendered.objects
        if each["kind"] in {"ClusterRole", "Role"}
    }
    for binding in rendered.all("ClusterRoleBinding") + rendered.all("RoleBinding"):
        where = binding["metadata"].get("namespace")
        if (binding["roleRef"]["kind"], where, binding["roleRef"]["name"]) not in roles:
            yield f"{binding['metadata']['name']}: no such role"
    for created in rendered.all("ServiceAccount"):
        if created["metadata"]["name"] != account:
            yield f"ServiceAccount {created['metadata']['name']} is not the pods'"
        if created["metadata"]["namespace"] != NAMESPACE:
            yield "ServiceAccount is elsewhere"


def containers(spec: Object) -> list[Object]:
    """All containers of a pod."""
    return [*spec.get("initContainers", ()), *spec["containers"]]


def _pod(whose: str, spec: Object) -> Iterator[str]:
    volumes = [volume["name"] for volume in spec.get("volumes", ())]
    names = [container["name"] for container in containers(spec)]
    for what, found in (("volume", volumes), ("container", names)):
        if len(found) != len(set(found)):
            yield f"{whose}: {what} names {found}"
    mounted = set()
    for container in containers(spec):
        places = [mount["mountPath"] for mount in container.get("volumeMounts", ())]
        if len(places) != len(set(places)):
            yield f"{whose}: mounted over each other: {places}"
        for mount in container.get("volumeMounts", ()):
            mounted.add(mount["name"])
            if mount["name"] not in volumes:
                yield f"{whose}: no volume {mount['name']}"
        ports = [port["name"] for port in container.get("ports", ())]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            asked = container.get(probe, {}).get("httpGet", {}).get("port")
            if isinstance(asked, str) and asked not in ports:
                yield f"{whose}: {probe} asks port {asked}"
    for unused in set(volumes) - mounted:
        yield f"{whose}: volume {unused} is not mounted"


# ------------------------------------------------------------ Pod Security Standards


def unrestricted(spec: Object) -> list[str]:
    """How a pod breaks the Pod Security Standard ``restricted`` (Kubernetes 1.36), or what the project adds to it."""
    return [
        *_of_pod(spec),
        *(said for each in containers(spec) for said in _of_container(spec, each)),
    ]


def _of_pod(spec: Object) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if spec.get(field):
            yield field
    for volume in spec.get("volumes", ()):
        for kind in volume.keys() - {"name"} - _VOLUMES:
            yield f"volume {volume['name']} of kind {kind}"
    if spec.get("automountServiceAccountToken") is not False:
        yield "the service account's token is mounted into every container"


def _of_container(spec: Object, container: Object) -> Iterator[str]:
    pod, own = spec.get("securityContext", {}), container.get("securityContext", {})
    either: dict[str, Any] = {**pod, **own}
    demands = {
        "privileged": not own.get("privileged"),
        "allowPrivilegeEscalation": own.get("allowPrivilegeEscalation") is False,
        "capabilities": own.get("capabilities", {}).get("drop") == ["ALL"]
        and not own["capabilities"].get("add"),
        "runAsNonRoot": either.get("runAsNonRoot") is True and either.get("runAsUser") != 0,
        "seccompProfile": either.get("seccompProfile", {}).get("type")
        in {"RuntimeDefault", "Localhost"},
        "readOnlyRootFilesystem": own.get("readOnlyRootFilesystem") is True,
        "hostPort": not any("hostPort" in port for port in container.get("ports", ())),
    }
    for demand, met in demands.items():
        if not met:
            yield f"{container['name']}: {demand}"
