"""Discovery: which groups, versions and resources there are, in the plain and in the aggregated form."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from app.sim.resources.kinds import KINDS, STORED_VERBS, Kind, Subresource

VERSION: Final = "v1.36.0"

_APIDISCOVERY: Final = "apidiscovery.k8s.io/v2"


def version_info() -> dict[str, str]:
    """The answer of ``/version``."""
    return {
        "major": "1",
        "minor": "36",
        "gitVersion": f"{VERSION}+aiokube-scheduler",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "none",
        "compiler": "none",
        "platform": "linux/amd64",
    }


def _groups() -> dict[str, list[Kind]]:
    """Group versions in the order of the table: ``apps/v1`` -> its kinds."""
    groups: dict[str, list[Kind]] = {}
    for kind in KINDS:
        groups.setdefault(kind.group_version, []).append(kind)
    return groups


def plain_documents(address: str) -> dict[str, bytes]:
    """Builds the classic documents: path -> body. ``address`` is the server's host and port."""
    groups = _groups()
    api = {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    }
    named = [_api_group(group_version) for group_version in groups if "/" in group_version]
    apis = {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
    documents: dict[str, Any] = {"/api": api, "/apis": apis}
    for group in named:
        documents[f"/apis/{group['name']}"] = {"kind": "APIGroup", "apiVersion": "v1", **group}
    for group_version, kinds in groups.items():
        root = "/apis" if "/" in group_version else "/api"
        documents[f"{root}/{group_version}"] = _resource_list(group_version, kinds)
    return {path: msgspec.json.encode(document) for path, document in documents.items()}


def _api_group(group_version: str) -> dict[str, Any]:
    group, _, version = group_version.partition("/")
    entry = {"groupVersion": group_version, "version": version}
    return {"name": group, "versions": [entry], "preferredVersion": entry}


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


def aggregated_documents() -> dict[str, bytes]:
    """Builds the two documents of aggregated discovery: path -> body."""
    core: list[dict[str, Any]] = []
    named: list[dict[str, Any]] = []
    for group_version, kinds in _groups().items():
        group, _, version = group_version.rpartition("/")
        resources = [_aggregated_resource(kind) for kind in kinds]
        item = {
            "metadata": {"name": group} if group else {},
            "versions": [{"version": version, "resources": resources, "freshness": "Current"}],
        }
        (named if group else core).append(item)
    return {"/api": _discovery_list(core), "/apis": _discovery_list(named)}


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


def openapi_documents() -> dict[str, bytes]:
    """The part of OpenAPI v3 that kubectl reads before it writes: the query parameters of PATCH.

    Schemas are left out; kubectl then relies on those it was built with.
    """
    paths: dict[str, Any] = {}
    documents: dict[str, bytes] = {}
    for group_version, kinds in _groups().items():
        name = f"apis/{group_version}" if "/" in group_version else f"api/{group_version}"
        document = {
            "openapi": "3.0.0",
            "info": {"title": "Kubernetes", "version": VERSION},
            "paths": {_object_path(name, kind): _object_operations(kind) for kind in kinds},
            "components": {"schemas": {}},
        }
        documents[f"/openapi/v3/{name}"] = msgspec.json.encode(document)
        paths[name] = {"serverRelativeURL": f"/openapi/v3/{name}?hash={VERSION}"}
    documents["/openapi/v3"] = msgspec.json.encode({"paths": paths})
    return documents


def _object_path(root: str, kind: Kind) -> str:
    scope = "/namespaces/{namespace}" if kind.namespaced else ""
    return f"/{root}{scope}/{kind.plural}/{{name}}"


def _object_operations(kind: Kind) -> dict[str, Any]:
    if kind.verbs != STORED_VERBS:
        return {}
    names = ("dryRun", "fieldManager", "fieldValidation", "force")
    parameters = [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]
    type_ = {"group": kind.group, "version": kind.version, "kind": kind.kind}
    return {"patch": {"parameters": parameters, "x-kubernetes-group-version-kind": type_}}


OPENAPI_V2: Final = b"\x0a\x032.0"
"""An empty OpenAPI v2 document in the protobuf form that kubectl asks for: only ``swagger: "2.0"`` is set."""
