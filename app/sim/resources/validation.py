"""Validation for objects of all kinds: names, labels, finalizers, immutable metadata."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.model.names import (
    NOT_A_LABEL_VALUE,
    dns_name_errors,
    label_value_errors,
    qualified_name_errors,
)
from app.sim.errors import Cause, forbidden_value, invalid_value, required
from app.sim.resources.kinds import Kind
from app.sim.store import Object

_STANDARD_FINALIZERS: Final = {"foregroundDeletion", "kubernetes", "orphan"}
_OWNER_FIELDS: Final = {
    "apiVersion": "version must not be empty",
    "kind": "must not be empty",
    "name": "must not be empty",
    "uid": "must not be empty",
}
"""The fields that an owner reference must have, and what is said of an empty one."""
_NAMED_BY_LABEL: Final = {"namespaces", "services"}
"""Resources whose names must be a single DNS label."""
_NAMED_BY_SEGMENT: Final = {"rbac.authorization.k8s.io"}
"""Groups whose objects have names such as ``system:node``."""


def name_mistakes(field: str, name: str, *, single_label: bool) -> list[Cause]:
    """Checks a name, as a DNS label or subdomain; returns what is wrong with it."""
    return _invalid(field, name, dns_name_errors(name, single_label=single_label))


def _invalid(field: str, value: str, errors: Iterable[str]) -> list[Cause]:
    return [invalid_value(field, value, error) for error in errors]


def segment_mistakes(field: str, name: str) -> list[Cause]:
    """Checks a name that may be anything that a path can have between two slashes."""
    details = [f"may not be '{name}'"] if name in (".", "..") else []
    details += [f"may not contain '{part}'" for part in ("/", "%") if part in name]
    return _invalid(field, name, details)


def metadata_mistakes(kind: Kind, value: Object) -> list[Cause]:
    """Checks name, labels and finalizers of an object."""
    metadata = value["metadata"]
    name = metadata.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    if kind.group in _NAMED_BY_SEGMENT:
        causes = segment_mistakes("metadata.name", name)
    else:
        causes = name_mistakes("metadata.name", name, single_label=kind.plural in _NAMED_BY_LABEL)
    causes += label_mistakes("metadata.labels", metadata.get("labels", {}))
    for index, finalizer in enumerate(metadata.get("finalizers", ())):
        causes += label_key_mistakes("metadata.finalizers", finalizer)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, detail))
    return causes + owner_mistakes(metadata.get("ownerReferences", ()))


def owner_mistakes(references: Sequence[Mapping[str, Any]]) -> list[Cause]:
    """Checks owner references: each names its owner in full, and at most one is the controller."""
    field = "metadata.ownerReferences"
    causes = []
    for reference in references:
        for name, detail in _OWNER_FIELDS.items():
            given = reference.get(name, "")
            if not given or (name == "apiVersion" and given.count("/") > 1):
                causes.append(invalid_value(f"{field}.{name}", given, detail))
        if reference.get("kind") == "Event" and reference.get("apiVersion") == "v1":
            detail = "/v1, Kind=Event is disallowed from being an owner"
            causes.append(invalid_value(field, reference, detail))
    controllers = [each for each in references if each.get("controller")]
    if len(controllers) > 1:
        first, second = (f"{each.get('kind')}/{each.get('name')}" for each in controllers[:2])
        why = 'Only one reference can have Controller set to true. Found "true" in references for'
        causes.append(invalid_value(field, references, f"{why} {first} and {second}"))
    return causes


def label_mistakes(field: str, labels: Mapping[str, Any]) -> list[Cause]:
    """Checks labels."""
    causes = []
    for key, value in labels.items():
        causes += label_key_mistakes(field, key) + label_value_mistakes(field, value)
    return causes


def label_key_mistakes(field: str, key: str) -> list[Cause]:
    """Checks ``NAME`` or ``DOMAIN/NAME``: a label's key, a taint's, the type of a condition."""
    return _invalid(field, key, qualified_name_errors(key))


def label_value_mistakes(field: str, value: object) -> list[Cause]:
    """Checks a label's value, or what is compared with one."""
    if not isinstance(value, str):
        return [invalid_value(field, str(value), NOT_A_LABEL_VALUE)]
    return _invalid(field, value, label_value_errors(value))


def metadata_update_mistakes(new: Object, old: Object) -> list[Cause]:
    """Checks what an update may not do to metadata."""
    metadata, before = new["metadata"], old["metadata"]
    causes = []
    if metadata.get("uid", before["uid"]) != before["uid"]:
        causes.append(invalid_value("metadata.uid", metadata["uid"], "field is immutable"))
    if "deletionTimestamp" in before:
        known = before.get("finalizers", ())
        added = [name for name in metadata.get("finalizers", ()) if name not in known]
        if added:
            listed = ", ".join(f'"{name}"' for name in added)
            causes.append(
                forbidden_value(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, "
                    f"found new finalizers []string{{{listed}}}",
                )
            )
    return causes
