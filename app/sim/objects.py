"""The parts every object has: type, metadata, conditions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final
from uuid import uuid4

from app.sim.errors import bad_request
from app.sim.resources.kinds import Kind
from app.sim.store import Key, Object

_METADATA_FIELDS: Final = (
    "name",
    "generateName",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
)
"""The fields that are kept, in the real server's order. managedFields is not kept."""

_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_MAX_GENERATED_PREFIX: Final = 58


def normalised(kind: Kind, value: Any) -> Object:
    """Checks that ``value`` is an object of this kind and returns it as it will be stored.

    Type first, then metadata with its known fields; nulls, and empty metadata, are gone as if they had never been set.
    Raises 400.
    """
    if not isinstance(value, dict):
        raise bad_request(f"the object provided is unrecognized (must be of type {kind.kind})")
    _check_type(kind, value)
    metadata = value.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise bad_request("metadata must be an object")
    _check_shapes(value, metadata)
    result: Object = {"kind": kind.kind, "apiVersion": kind.group_version}
    result["metadata"] = {name: metadata[name] for name in _METADATA_FIELDS if metadata.get(name)}
    for name, part in value.items():
        if part is not None and name not in result:
            result[name] = _without_nulls(part)
    return result


def _check_type(kind: Kind, value: Object) -> None:
    found_kind = value.get("kind") or kind.kind
    found_version = value.get("apiVersion") or kind.group_version
    if (found_kind, found_version) != (kind.kind, kind.group_version):
        raise bad_request(
            f'{found_kind} in version "{found_version}" cannot be handled as a {kind.kind}: '
            f'want kind "{kind.kind}", apiVersion "{kind.group_version}"'
        )


def _check_shapes(value: Object, metadata: Object) -> None:
    """Raises 400 if a part that must be a map is something else."""
    for name in ("spec", "status"):
        if not isinstance(value.get(name, {}), dict | None):
            raise bad_request(f"{name} must be an object")
    for name in ("labels", "annotations"):
        texts = metadata.get(name) or {}
        if not isinstance(texts, dict) or not all(isinstance(text, str) for text in texts.values()):
            raise bad_request(f"metadata.{name} must be a map of strings")
    finalizers = metadata.get("finalizers") or []
    if not isinstance(finalizers, list) or not all(isinstance(each, str) for each in finalizers):
        raise bad_request("metadata.finalizers must be a list of strings")
    owners = metadata.get("ownerReferences") or []
    if not isinstance(owners, list) or not all(map(_is_reference, owners)):
        raise bad_request("metadata.ownerReferences must be a list of references to objects")
    for name in ("name", "generateName", "namespace", "uid", "resourceVersion"):
        if not isinstance(metadata.get(name) or "", str):
            raise bad_request(f"metadata.{name} must be a string")


def _is_reference(value: Any) -> bool:
    """Whether a value has the form of an owner reference. Fields that are missing are found later, by validation."""
    return (
        isinstance(value, dict)
        and all(
            isinstance(value.get(name, ""), str) for name in ("apiVersion", "kind", "name", "uid")
        )
        and all(
            isinstance(value.get(name, False), bool)
            for name in ("controller", "blockOwnerDeletion")
        )
    )


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(part) for key, part in value.items() if part is not None}
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        return [_without_nulls(part) for part in value]
    return value


def key_of(value: Object) -> Key:
    """Returns the store key of an object: (namespace, name)."""
    metadata = value["metadata"]
    return metadata.get("namespace", ""), metadata["name"]


def new_uid() -> str:
    return str(uuid4())


def spelled(number: int, length: int) -> str:
    """A number in the letters of generated names, least significant first."""
    letters = []
    for _ in range(length):
        number, index = divmod(number, len(_LETTERS))
        letters.append(_LETTERS[index])
    return "".join(letters)


def generated_name(prefix: str) -> str:
    """A name from ``generateName``: the prefix and five random characters without vowels."""
    return prefix[:_MAX_GENERATED_PREFIX] + spelled(uuid4().int, _SUFFIX_LENGTH)


def labels_of(value: Object) -> Mapping[str, str]:
    """metadata.labels."""
    labels: Mapping[str, str] = value["metadata"].get("labels") or {}
    return labels


def controller_reference(value: Object) -> Object | None:
    """The reference to an object's controller; None without one."""
    for owner in value["metadata"].get("ownerReferences", ()):
        if owner.get("controller"):
            return owner  # type: ignore[no-any-return]  # JSON
    return None


def owner_reference(value: Object) -> Object:
    """The owner reference to an object, which becomes the controller."""
    names = {name: value["metadata"][name] for name in ("name", "uid")}
    types = {name: value[name] for name in ("apiVersion", "kind")}
    return types | names | {"controller": True, "blockOwnerDeletion": True}


def selector_of(workload: Object) -> Any:
    """The label selector of a workload; that of a ReplicationController is only a map of labels."""
    selector = workload["spec"].get("selector")
    if workload["kind"] == "ReplicationController":
        return {"matchLabels": selector or {}}
    return selector


def has_ended(pod: Object) -> bool:
    """Whether a pod has succeeded or failed."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def group_name(pod: Object) -> str:
    """The name of the group that a pod belongs to; empty without one."""
    return str((pod["spec"].get("schedulingGroup") or {}).get("podGroupName") or "")


def find_condition(value: Object, type_: str) -> Mapping[str, Any] | None:
    """Returns the condition of this type from the object's status, or None."""
    for condition in (value.get("status") or {}).get("conditions") or ():
        if condition.get("type") == type_:
            return condition  # type: ignore[no-any-return]  # JSON
    return None


def is_true(value: Object, condition_type: str) -> bool:
    """Whether the object's condition of this type is True."""
    condition = find_condition(value, condition_type)
    return condition is not None and condition.get("status") == "True"


def with_condition(conditions: list[Any], new: Mapping[str, Any]) -> list[Any]:
    """The conditions with ``new`` replacing the one of its type, or added at the end."""
    kept = [new if known.get("type") == new["type"] else known for known in conditions]
    return kept if new in kept else [*kept, new]


def transition_time(conditions: Iterable[Any], type_: str, status: str, now: str) -> str:
    """When a condition took its status; ``now`` if it had another one, or was not there."""
    for known in conditions:
        if known.get("type") == type_ and known.get("status") == status:
            return str(known.get("lastTransitionTime", now))
    return now


def without_finalizer(value: Object, finalizer: str) -> Object:
    """The object without one of its finalizers."""
    metadata = value["metadata"]
    kept = [each for each in metadata.get("finalizers", ()) if each != finalizer]
    return value | {"metadata": metadata | {"finalizers": kept}}


def is_being_deleted(value: Object) -> bool:
    return "deletionTimestamp" in value["metadata"]
