"""Role-based access control as the API server evaluates it: from a request to what it needs, from roles to what they
allow.
"""

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from tests.helm.chart import Object

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_TRUE: Final = frozenset({"true", "1"})

#: What everybody who is known may do, by the roles that a cluster comes with: system:discovery.
DISCOVERY: Final[Object] = {
    "verbs": ["get"],
    "nonResourceURLs": [
        *("/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*"),
        *("/readyz", "/version", "/version/"),
    ],
}


@dataclasses.dataclass(frozen=True, order=True)
class Access:
    """What a request needs: a verb, and a resource (``pods/status``) or the path of something else."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    """Empty for cluster-scoped resources and for all namespaces."""
    name: str = ""
    """Empty for collections, and for what is created."""
    path: str = ""

    @property
    def kind(self) -> tuple[str, str, str]:
        """(verb, group, resource): what a rule without names is about."""
        return self.verb, self.group, self.resource


def needs(method: str, target: str) -> Access:
    """What a request to the API server needs, as its RequestInfo has it. ``target`` may have a query."""
    url = urlsplit(target)
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    root, *parts = url.path.strip("/").split("/")
    grouped = 3 if root == "apis" else 2
    if root not in {"api", "apis"} or len(parts) < grouped:
        return Access(method.lower(), path=url.path)
    group = parts[0] if root == "apis" else ""
    parts = parts[grouped - 1 :]
    namespace = ""
    if parts[0] == "namespaces" and len(parts) > 2:
        namespace, parts = parts[1], parts[2:]
    resource, name, subresource = (*parts, "", "")[:3]
    if method == "GET" and not name:
        name = _selected_name(query)
        verb = "watch" if query.get("watch") in _TRUE else "list"
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    else:
        verb = _VERBS.get(method, "get")
    if subresource:
        resource = f"{resource}/{subresource}"
    return Access(verb, group, resource, namespace, name)


def _selected_name(query: dict[str, str]) -> str:
    """A collection limited to one name by a field selector counts as that name."""
    field, _, value = query.get("fieldSelector", "").partition("=")
    return value.removeprefix("=") if field == "metadata.name" else ""


def rules_of(
    objects: Iterable[Object], account: str, namespace: str
) -> Iterator[tuple[str, Object]]:
    """(namespace or "" for everywhere, rule) of a service account, by bindings among these objects."""
    known = list(objects)
    roles = {
        (each["kind"], each["metadata"].get("namespace", ""), each["metadata"]["name"]): each
        for each in known
        if each["kind"] in {"ClusterRole", "Role"}
    }
    for binding in known:
        if binding["kind"] not in {"ClusterRoleBinding", "RoleBinding"}:
            continue
        where = binding["metadata"].get("namespace", "")
        reference = binding["roleRef"]
        home = where if reference["kind"] == "Role" else ""
        if any(_is(subject, account, namespace) for subject in binding["subjects"]):
            role = roles[reference["kind"], home, reference["name"]]
            yield from ((where, rule) for rule in role["rules"])


def _is(subject: dict[str, Any], account: str, namespace: str) -> bool:
    wanted = ("ServiceAccount", account, namespace)
    return (subject["kind"], subject["name"], subject.get("namespace")) == wanted


def allows(rules: Iterable[tuple[str, Object]], access: Access) -> bool:
    """Whether one of the rules, or what everybody may do, permits it."""
    return _matches(DISCOVERY, access) or any(
        _matches(rule, access) for where, rule in rules if where in {"", access.namespace}
    )


def _matches(rule: Object, access: Access) -> bool:
    def has(field: str, value: str) -> bool:
        return bool({"*", value} & set(rule.get(field, ())))

    if not has("verbs", access.verb):
        return False
    if access.path:
        return any(_covers(url, access.path) for url in rule.get("nonResourceURLs", ()))
    names = rule.get("resourceNames", ())
    return (
        has("apiGroups", access.group)
        and (has("resources", access.resource) or _is_any_subresource(rule, access.resource))
        and (not names or access.name in names)
    )


def _is_any_subresource(rule: Object, resource: str) -> bool:
    _, slash, subresource = resource.partition("/")
    return bool(slash) and f"*/{subresource}" in rule.get("resources", ())


def _covers(url: str, path: str) -> bool:
    return url in {path, "*"} or (url.endswith("*") and path.startswith(url[:-1]))


def granted(rules: list[tuple[str, Object]]) -> set[tuple[str, str, str]]:
    """(verb, group, resource) of everything that rules allow, one by one."""
    return {
        (verb, group, resource)
        for _, rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
