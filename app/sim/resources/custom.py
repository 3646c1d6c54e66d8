"""CustomResourceDefinitions: the kinds that they define. Their objects are stored as they are given."""

import re
from collections.abc import Iterator
from typing import Any, Final

from app.sim.errors import Cause, invalid_value, required
from app.sim.lookup import Lookup
from app.sim.objects import transition_time
from app.sim.resources.kinds import KINDS, Kind
from app.sim.resources.strategy import KindStrategy
from app.sim.resources.validation import name_mistakes
from app.sim.store import Object

_GROUPS: Final = {kind.group for kind in KINDS}
_IMMUTABLE: Final = (("group",), ("scope",), ("names", "kind"), ("names", "plural"))
"""Fields of the spec that an update cannot change."""
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,62}")
_VERSION: Final = re.compile(r"v[a-z0-9]{1,20}")
_NUMBERED: Final = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?")
_SCOPES: Final = ("Namespaced", "Cluster")


class CustomResourceDefinitionStrategy(KindStrategy):
    """A definition has valid names, at least one version, and exactly one that is stored."""

    def prepare_for_create(self, value: Object, api: Lookup) -> None:  # noqa: ARG002
        value.pop("status", None)

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        causes = []
        for path in _IMMUTABLE:
            new, before = value["spec"], old["spec"]
            for part in path:
                new, before = new[part], before[part]
            if new != before:
                field = f"spec.{'.'.join(path)}"
                causes.append(invalid_value(field, new, "field is immutable"))
        return causes

    def mistakes(self, value: Object) -> list[Cause]:
        spec = value.get("spec") or {}
        names = spec.get("names") if isinstance(spec.get("names"), dict) else {}
        group, plural = str(spec.get("group", "")), str((names or {}).get("plural", ""))
        causes = name_mistakes("spec.group", group, single_label=False)
        causes += name_mistakes("spec.names.plural", plural, single_label=True)
        if value["metadata"]["name"] != f"{plural}.{group}":
            detail = f'must be spec.names.plural+"."+spec.group: "{plural}.{group}"'
            causes.append(invalid_value("metadata.name", value["metadata"]["name"], detail))
        if "." not in group:
            detail = "should be a domain with at least one dot"
            causes.append(invalid_value("spec.group", group, detail))
        elif group in _GROUPS:
            causes.append(invalid_value("spec.group", group, "is a group of the server itself"))
        if not _KIND.fullmatch(str((names or {}).get("kind", ""))):
            causes.append(required("spec.names.kind"))
        if spec.get("scope") not in _SCOPES:
            detail = "must be Namespaced or Cluster"
            causes.append(invalid_value("spec.scope", str(spec.get("scope")), detail))
        return causes + _version_mistakes(spec)


def _version_mistakes(spec: Object) -> list[Cause]:
    versions = spec.get("versions")
    if not isinstance(versions, list) or not all(isinstance(each, dict) for each in versions):
        return [required("spec.versions")]
    names = [str(each.get("name", "")) for each in versions]
    causes = [
        invalid_value(f"spec.versions[{index}].name", name, "must be a version such as v1")
        for index, name in enumerate(names)
        if not _VERSION.fullmatch(name) or name in names[:index]
    ]
    for index, each in enumerate(versions):
        for name in ("schema", "subresources"):
            if not isinstance(each.get(name, {}), dict):
                field = f"spec.versions[{index}].{name}"
                causes.append(invalid_value(field, str(each[name]), "must be an object"))
    if sum(bool(each.get("storage")) for each in versions) != 1:
        detail = "must have exactly one version marked as storage version"
        causes.append(invalid_value("spec.versions", ", ".join(names), detail))
    return causes


def stored_version(definition: Object) -> str:
    """The group and version in which the objects of a definition are stored."""
    spec = definition["spec"]
    version = next(each["name"] for each in spec["versions"] if each.get("storage"))
    return f"{spec['group']}/{version}"


def kinds_of(definition: Object) -> Iterator[tuple[Kind, dict[str, Any]]]:
    """The kinds that a definition defines, one for each version that is served, and their schemas.

    The version that clients prefer comes first.
    """
    spec, names = definition["spec"], definition["spec"]["names"]
    stored = stored_version(definition)
    resource = f"{names['plural']}.{spec['group']}"
    for version in sorted(spec["versions"], key=lambda each: _age(each["name"]), reverse=True):
        if not version.get("served"):
            continue
        other = f"{spec['group']}/{version['name']}" != stored
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        kind = Kind(
            group=spec["group"],
            version=version["name"],
            kind=names["kind"],
            plural=names["plural"],
            namespaced=spec["scope"] == "Namespaced",
            short_names=_texts(names.get("shortNames")),
            categories=_texts(names.get("categories")),
            has_status="status" in (version.get("subresources") or {}),
            counts_generations=True,
            stored_as=resource if other else "",
            stored_version=stored if other else "",
        )
        yield kind, schema if isinstance(schema, dict) else {}


def _age(version: str) -> tuple[int, int, int, str]:
    """Sorts versions: stable ones above beta and alpha ones, and high numbers above low ones.

    Other names come before.
    """
    match = _NUMBERED.fullmatch(version)
    if match is None:
        return -1, 0, 0, version
    major, stage, minor = match.groups()
    stages = {"alpha": 0, "beta": 1}
    return stages.get(stage, 2), int(major), int(minor or 0), version


def _texts(given: Any) -> tuple[str, ...]:
    return tuple(str(each) for each in given) if isinstance(given, list) else ()


def definition_status(definition: Object, timestamp: str, *, conflicting: bool) -> Object:
    """The status of a definition: whether its kinds are served. ``conflicting``: another one defines its kind."""
    names, before = definition["spec"]["names"], definition.get("status") or {}
    known = {"singular": names["kind"].lower(), "listKind": f"{names['kind']}List"}
    accepted = known | names
    conditions = {
        "NamesAccepted": ("True", "NoConflicts", "no conflicts found"),
        "Established": ("True", "InitialNamesAccepted", "the initial names have been accepted"),
    }
    if conflicting:
        why = f'"{accepted["listKind"]}" is already in use'
        conditions = {
            "NamesAccepted": ("False", "ListKindConflict", why),
            "Established": ("False", "NotAccepted", "not all names are accepted"),
        }
        accepted = {"plural": names["plural"], "kind": ""}
    stored = stored_version(definition).rpartition("/")[2]
    known_conditions = before.get("conditions") or ()
    versions = [each for each in before.get("storedVersions") or () if each != stored]
    return {
        "conditions": [
            {
                "type": type_,
                "status": status,
                "lastTransitionTime": transition_time(known_conditions, type_, status, timestamp),
                "reason": reason,
                "message": message,
            }
            for type_, (status, reason, message) in conditions.items()
        ],
        "acceptedNames": accepted,
        "storedVersions": [*versions, stored],
    }
