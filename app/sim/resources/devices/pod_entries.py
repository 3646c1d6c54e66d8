"""Validation of the claims that a pod names, and of their use by containers."""

from collections.abc import Collection

from app.sim.errors import Cause, duplicate_value, invalid_value, not_among, required
from app.sim.resources.devices.checks import distinct, each, label, named, subdomain
from app.sim.store import Object

_SOURCES = ("resourceClaimName", "resourceClaimTemplateName")


def entry_mistakes(spec: Object, path: str) -> list[Cause]:
    """Checks ``resourceClaims`` of a pod, and ``resources.claims`` of its containers."""
    claims = spec.get("resourceClaims") or []
    seen: set[str] = set()
    causes = []
    for index, entry in enumerate(claims):
        causes += _entry(entry, f"{path}.resourceClaims[{index}]", seen)
    for field in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(field) or ()):
            where = f"{path}.{field}[{index}].resources.claims"
            causes += _references(container, where, {named(entry) for entry in claims} - {""})
    return causes


def entry_status_mistakes(pod: Object) -> list[Cause]:
    """Checks the entries in a pod's status of claims that were created for it."""
    status = pod["status"]
    known = {named(entry) for entry in pod["spec"].get("resourceClaims") or ()}

    def noted(value: Object, path: str) -> list[Cause]:
        causes = []
        if named(value) not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            causes.append(invalid_value(f"{path}.name", named(value), detail))
        if "resourceClaimName" in value:
            causes += subdomain(value["resourceClaimName"], f"{path}.resourceClaimName")
        return causes

    path = "status.resourceClaimStatuses"
    causes = distinct(status.get("resourceClaimStatuses", ()), path, noted, key=named, at=".name")
    extended = status.get("extendedResourceClaimStatus")
    return causes if extended is None else causes + _extended(extended, pod["spec"])


def _extended(value: Object, spec: Object) -> list[Cause]:
    """Checks the mapping of requests to resources of containers."""
    path = "status.extendedResourceClaimStatus"
    containers = {
        container["name"]: (container.get("resources") or {}).get("requests") or {}
        for field in ("initContainers", "containers")
        for container in spec.get(field) or ()
    }

    def mapping(given: Object, where: str) -> list[Cause]:
        container, resource = given.get("containerName", ""), given.get("resourceName", "")
        causes = label(given.get("requestName", ""), f"{path}.requestName")
        if container not in containers:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            return [invalid_value(f"{where}.containerName", container, detail), *causes]
        if resource not in containers[container]:
            detail = (
                "must match the extended resource name of an entry in "
                "spec.initContainers.resources.requests or spec.containers.resources.requests"
            )
            return [invalid_value(f"{where}.resourceName", resource, detail), *causes]
        return causes

    mappings, where = value.get("requestMappings") or [], f"{path}.requestMappings"
    causes = each(mappings, where, mapping)
    if not mappings:
        causes.append(required(where, "at least one request mapping is required"))
    causes += [
        duplicate_value(f"{where}[{index}].{part}", given.get(part, ""))
        for index, given in enumerate(mappings)
        if given in mappings[:index]
        for part in ("containerName", "resourceName", "requestName")
    ]
    name = value.get("resourceClaimName")
    where = f"{path}.resourceClaimName"
    return causes + (subdomain(name, where) if name else [required(where)])


def _entry(entry: Object, path: str, seen: set[str]) -> list[Cause]:
    name = named(entry)
    if not name:
        causes = [required(f"{path}.name")]
    elif name in seen:
        causes = [duplicate_value(f"{path}.name", name)]
    else:
        causes = label(name, f"{path}.name")
    seen.add(name)
    given = [source for source in _SOURCES if source in entry]
    if len(given) > 1:
        detail = (
            "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
        )
        causes.append(invalid_value(path, entry, detail))
    if not given:
        detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
        causes.append(invalid_value(path, entry, detail))
    return causes + [
        cause for source in given for cause in subdomain(entry[source], f"{path}.{source}")
    ]


def _references(container: Object, path: str, known: Collection[str]) -> list[Cause]:
    """Checks that a container uses all requests of a claim, or one of them, and none twice."""
    causes = []
    seen: set[str] = set()
    for index, reference in enumerate((container.get("resources") or {}).get("claims") or ()):
        where, name, request = f"{path}[{index}]", named(reference), reference.get("request")
        if not name:
            causes.append(required(where))
            continue
        if request and name not in seen:
            causes += label(request, f"{where}.request")
        key = f"{name}/{request}" if request else name
        if name in seen or (not request and any(each.startswith(f"{name}/") for each in seen)):
            causes.append(duplicate_value(where, name))
        elif key in seen:
            causes.append(duplicate_value(where, key))
        seen.add(key)
        if name not in known:
            causes.append(not_among(where, name, "pod.spec.resourceClaims", sorted(known)))
    return causes
