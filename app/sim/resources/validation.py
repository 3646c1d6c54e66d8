"""Validation for objects of all kinds: names, labels, finalizers, immutable metadata."""

import re
from collections.abc import Mapping
from typing import Any, Final

from app.sim.errors import Cause, forbidden_value, invalid_value, required
from app.sim.resources.kinds import Kind
from app.sim.store import Object

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_LABEL_NAME: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"

_is_subdomain = re.compile(_SUBDOMAIN).fullmatch
_is_label_name = re.compile(_LABEL_NAME).fullmatch

_MAX_DNS_LABEL: Final = 63
_MAX_SUBDOMAIN: Final = 253

_NOT_A_SUBDOMAIN: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    rf"'{_LABEL}(\.{_LABEL})*')"
)
_NOT_A_LABEL: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    f"with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '{_LABEL}')"
)
_NOT_A_KEY: Final = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_NOT_A_LABEL_VALUE: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)

_STANDARD_FINALIZERS: Final = {"foregroundDeletion", "kubernetes", "orphan"}
_NAMED_BY_LABEL: Final = {"namespaces", "services"}
"""Resources whose names must be a single DNS label."""
_NAMED_BY_SEGMENT: Final = {"rbac.authorization.k8s.io"}
"""Groups whose objects have names such as ``system:node``."""


def name_mistakes(field: str, name: str, *, single_label: bool) -> list[Cause]:
    """Checks a name, as a DNS label or subdomain; returns what is wrong with it."""
    limit = _MAX_DNS_LABEL if single_label else _MAX_SUBDOMAIN
    details = [f"must be no more than {limit} characters"] if len(name) > limit else []
    if not _is_subdomain(name):
        details.append(_NOT_A_LABEL if single_label else _NOT_A_SUBDOMAIN)
    elif single_label and "." in name:
        details.append("must not contain dots")
    return [invalid_value(field, name, detail) for detail in details]


def _segment_mistakes(name: str) -> list[Cause]:
    """Checks a name that may be anything that a path can have between two slashes."""
    details = [f"may not be '{name}'"] if name in (".", "..") else []
    details += [f"may not contain '{part}'" for part in ("/", "%") if part in name]
    return [invalid_value("metadata.name", name, detail) for detail in details]


def metadata_mistakes(kind: Kind, value: Object) -> list[Cause]:
    """Checks name, labels and finalizers of an object."""
    metadata = value["metadata"]
    name = metadata.get("name", "")
    if not name:
        return [required("metadata.name", "name or generateName is required")]
    if kind.group in _NAMED_BY_SEGMENT:
        causes = _segment_mistakes(name)
    else:
        causes = name_mistakes("metadata.name", name, single_label=kind.plural in _NAMED_BY_LABEL)
    causes += label_mistakes("metadata.labels", metadata.get("labels", {}))
    for index, finalizer in enumerate(metadata.get("finalizers", ())):
        causes += label_key_mistakes("metadata.finalizers", finalizer)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS:
            detail = "name is neither a standard finalizer name nor is it fully qualified"
            causes.append(invalid_value(f"metadata.finalizers[{index}]", finalizer, detail))
    return causes


def label_mistakes(field: str, labels: Mapping[str, Any]) -> list[Cause]:
    """Checks labels."""
    causes = []
    for key, value in labels.items():
        causes += label_key_mistakes(field, key) + label_value_mistakes(field, value)
    return causes


def label_key_mistakes(field: str, key: str) -> list[Cause]:
    """Checks ``NAME`` or ``DOMAIN/NAME``: a label's key, a taint's, the type of a condition."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        example = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        return [invalid_value(field, key, f"a valid label key {_NOT_A_KEY} {example}")]
    details = []
    if slash and not prefix:
        details.append("prefix part must be non-empty")
    elif slash and not _is_subdomain(prefix):
        details.append(f"prefix part {_NOT_A_SUBDOMAIN}")
    if not name:
        details.append("name part must be non-empty")
    elif len(name) > _MAX_DNS_LABEL:
        details.append(f"name part must be no more than {_MAX_DNS_LABEL} bytes")
    if not _is_label_name(name):
        details.append(f"name part {_NOT_A_KEY}")
    return [invalid_value(field, key, detail) for detail in details]


def label_value_mistakes(field: str, value: object) -> list[Cause]:
    """Checks a label's value, or what is compared with one."""
    if not isinstance(value, str) or (value and not _is_label_name(value)):
        return [invalid_value(field, str(value), _NOT_A_LABEL_VALUE)]
    if len(value) > _MAX_DNS_LABEL:
        detail = f"must be no more than {_MAX_DNS_LABEL} bytes"
        return [invalid_value(field, value, detail)]
    return []


def is_extended_resource(name: str) -> bool:
    """Whether a resource is an extended resource: its domain is not one of Kubernetes' own."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return not label_key_mistakes("", f"requests.{name}")


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
