"""Discovery: which groups, versions and resources there are, in the plain and in the aggregated form."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from app.sim.resources.kinds import Kind, KindTable, Subresource

#: Of the documents that describe the API.
VERSION: Final = "v1.36.0"

_APIDISCOVERY: Final = "apidiscovery.k8s.io/v2"


def version_info(kubernetes: str) -> dict[str, str]:
    """The answer of ``/version`` of a server of this version of Kubernetes, such as ``1.36``."""
    major, minor = kubernetes.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{kubernetes}.0+aiokube-scheduler",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def groups_of(kinds: KindTable) -> dict[str, list[Kind]]:
    """Group versions in the order of the table: ``apps/v1`` -> its kinds."""
    groups: dict[str, list[Kind]] = {}
    for kind in kinds:
        groups.setdefault(kind.group_version, []).append(kind)
    return groups


def plain_documents(kinds: KindTable, address: str) -> dict[str, bytes]:
    """Builds the classic documents: path -> body. ``address`` is the server's host and port."""
    groups = groups_of(kinds)
    api = {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }
    named = _api_groups(groups)
    apis = {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
    documents: dict[str, Any] = {"/api": api, "/apis": apis}
    for group in named:
        documents[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    for group_version, members in groups.items():
        root = "/apis" if "/" in group_version else "/api"
        documents[f"{root}/{group_version}"] = _resource_list(group_version, members)
    return {path: msgspec.json.encode(document) for path, document in documents.items()}


def _api_groups(group_versions: Iterable[str]) -> list[dict[str, Any]]:
    """The named groups with their versions; the first one is preferred."""
    groups: dict[str, list[dict[str, str]]] = {}
    for group_version in group_versions:
        group, _, version = group_version.rpartition("/")
        if group:
            entry = {"groupVersion": group_version, "version": version}
            groups.setdefault(group, []).append(entry)
    return [
        {"name": group, "versions": versions, "preferredVersion": versions[0]}
        for group, versions in groups.items()
    ]


def _resource_list(group_version: str, kinds: Iterable[Kind]) -> dict[str, Any]:
    resources = []
    for kind in kinds:
        resources.append(_resource(kind))
        resources += [_subresource(kind, sub) for sub in kind.all_subresources]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": resources,
    }


def _resource(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": kind.verbs,
    }
    return entry | _names(kind)


def _names(kind: Kind) -> dict[str, Any]:
    names = {"shortNames": kind.short_names, "categories": kind.categories}
    return {field: value for field, value in names.items() if value}


def _subresource(kind: Kind, sub: Subresource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{kind.plural}/{sub.name}",
        "singularName": "",
        "namespaced": kind.namespaced,
        "kind": sub.kind,
        "verbs": sub.verbs,
    }
    foreign = {"group": sub.group, "version": sub.version} if sub.group else {}
    return entry | foreign


def aggregated_documents(kinds: KindTable) -> dict[str, bytes]:
    """Builds the two documents of aggregated discovery: path -> body."""
    items: dict[str, dict[str, Any]] = {}
    for group_version, members in groups_of(kinds).items():
        group, _, version = group_version.rpartition("/")
        metadata = {"name": group} if group else {}
        item = items.setdefault(group, {"metadata": metadata, "versions": []})
        resources = [_aggregated_resource(kind) for kind in members]
        item["versions"].append(
            {"version": version, "resources": resources, "freshness": "Current"}
        )
    core = [items.pop("")]
    return {"/api": _discovery_list(core), "/apis": _discovery_list(list(items.values()))}


def _discovery_list(items: list[dict[str, Any]]) -> bytes:
    document = {"kind": "APIGroupDiscoveryList", "apiVersion": _APIDISCOVERY, "metadata": {}}
    return msgspec.json.encode(document | {"items": items})


def _aggregated_resource(kind: Kind) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": kind.plural,
        "responseKind": {"group": kind.group, "version": kind.version, "kind": kind.kind},
        "scope": "Namespaced" if kind.namespaced else "Cluster",
        "singularResource": kind.singular,
        "verbs": kind.verbs,
    }
    subresources = [
        {
            "subresource": sub.name,
            "responseKind": {
                "group": sub.group or kind.group,
                "version": sub.version or kind.version,
                "kind": sub.kind,
            },
            "verbs": sub.verbs,
        }
        for sub in kind.all_subresources
    ]
    return entry | _names(kind) | ({"subresources": subresources} if subresources else {})


def openapi_index(kinds: KindTable) -> bytes:
    """The index of the OpenAPI v3 documents."""
    paths = {}
    for group_version in groups_of(kinds):
        name = f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"
        url = f"{OPENAPI_V3}/{name}?hash={VERSION}-{kinds.version}"
        paths[name] = {"serverRelativeURL": url}
    return msgspec.json.encode({"paths": paths})


OPENAPI_V3: Final = "/openapi/v3"
OPENAPI_V2: Final = b"\x0a\x032.0"
"""An empty OpenAPI v2 document in the protobuf form that kubectl asks for: only ``swagger: "2.0"`` is set."""
