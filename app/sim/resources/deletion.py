"""Deletion: at once, after a grace period (pods), or when the last finalizer is gone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from app.model.timestamps import format_time
from app.sim.api import Api
from app.sim.errors import (
    ApiError,
    bad_request,
    conflict_with_kind,
    forbidden,
    invalid_options,
    unsupported_value,
)
from app.sim.objects import has_ended, is_being_deleted
from app.sim.resources.kinds import NAMESPACES, PODS, Kind
from app.sim.store import Object, Record

_PERMANENT_NAMESPACES: Final = ("default", "kube-system", "kube-public")
_DEFAULT_GRACE_SECONDS: Final = 30
FOREGROUND: Final = "foregroundDeletion"
ORPHAN: Final = "orphan"
_FINALIZERS: Final = {"Foreground": FOREGROUND, "Orphan": ORPHAN}
"""Finalizers that the garbage collector removes when it has dealt with the objects that an object owns."""
_PROPAGATIONS: Final = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteOptions:
    """The options of a deletion."""

    grace_period_seconds: int | None = None
    """None means the pod's own grace period, 0 none."""
    uid: str | None = None
    resource_version: str | None = None
    dry_run: bool = False
    propagation: str = "Background"
    """``Foreground``, ``Background`` or ``Orphan``: what becomes of the objects that the object owns."""


class Deletion(NamedTuple):
    record: Record
    """The object, as removed or as marked for removal."""
    finished: bool


def parse_delete_options(body: Any, query: Mapping[str, str]) -> DeleteOptions:
    """Reads ``DeleteOptions`` from a body, if there is one, and from the query. Raises 400."""
    given = body if isinstance(body, dict) else {}
    preconditions = given.get("preconditions") or {}
    return DeleteOptions(
        grace_period_seconds=_grace(given.get("gracePeriodSeconds"), query),
        uid=preconditions.get("uid"),
        resource_version=preconditions.get("resourceVersion"),
        dry_run=parse_dry_run(given.get("dryRun") or query.get("dryRun"), "DeleteOptions"),
        propagation=_propagation(given, query),
    )


def _propagation(given: Mapping[str, Any], query: Mapping[str, str]) -> str:
    if given.get("orphanDependents") is True:
        return "Orphan"
    policy = given.get("propagationPolicy") or query.get("propagationPolicy") or "Background"
    if policy not in _PROPAGATIONS:
        cause = unsupported_value("propagationPolicy", f'"{policy}"', _PROPAGATIONS)
        raise invalid_options("DeleteOptions", [cause])
    return str(policy)


def _grace(given: Any, query: Mapping[str, str]) -> int | None:
    value = query.get("gracePeriodSeconds") if given is None else given
    if value is None:
        return None
    try:
        return max(0, int(value))
    except (TypeError, ValueError):
        raise bad_request(f'gracePeriodSeconds: "{value}" is not a number of seconds') from None


def parse_dry_run(value: Any, options: str) -> bool:
    """Reads ``dryRun``, of which ``All`` is the only form. Raises 422."""
    stages = value if isinstance(value, list) else [value] if value else []
    if any(stage != "All" for stage in stages):
        listed = ",".join(f'"{stage}"' for stage in stages)
        raise invalid_options(options, [unsupported_value("dryRun", f"[{listed}]", ["All"])])
    return bool(stages)


def delete(api: Api, kind: Kind, namespace: str, name: str, options: DeleteOptions) -> Deletion:
    """Deletes an object, or marks it for deletion. Raises 403, 404 or 409."""
    record = api.get(kind, namespace, name)
    _check_preconditions(kind, record, options)
    if kind is NAMESPACES:
        return _delete_namespace(api, record, options)
    if kind is PODS:
        return _delete_pod(api, record, options)
    if is_being_deleted(record.value) and record.value["metadata"].get("finalizers"):
        return Deletion(record, finished=False)
    marked = _with_finalizer(record.value["metadata"], options.propagation)
    if not marked.get("finalizers"):
        return _remove(api, kind, record, options)
    return Deletion(_mark(api, kind, record, 0, options, marked), finished=False)


def _with_finalizer(metadata: Object, propagation: str) -> Object:
    """The metadata with the finalizer that a policy needs."""
    if propagation not in _FINALIZERS:
        return metadata
    known = metadata.get("finalizers", [])
    return metadata | {"finalizers": [*known, _FINALIZERS[propagation]]}


def delete_collection(
    api: Api, kind: Kind, records: Iterable[Record], options: DeleteOptions
) -> list[Record]:
    """Deletes each of the objects. Those that are deleted already, or cannot be deleted, are skipped."""
    deleted = []
    for record in records:
        try:
            deleted.append(delete(api, kind, record.namespace, record.name, options).record)
        except ApiError:
            continue
    return deleted


def _check_preconditions(kind: Kind, record: Record, options: DeleteOptions) -> None:
    metadata = record.value["metadata"]
    if options.uid is not None and options.uid != metadata["uid"]:
        why = (
            f"the UID in the precondition ({options.uid}) does not match the UID in record ({metadata['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict_with_kind(kind, record.name, why)
    wanted, found = options.resource_version, metadata["resourceVersion"]
    if wanted is not None and wanted != found:
        why = (
            f"the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record "
            f"({found}). The object might have been modified"
        )
        raise conflict_with_kind(kind, record.name, why)


def _remove(api: Api, kind: Kind, record: Record, options: DeleteOptions) -> Deletion:
    if options.dry_run:
        return Deletion(record, finished=True)
    return Deletion(api.store.remove(kind.storage, (record.namespace, record.name)), finished=True)


def _delete_namespace(api: Api, record: Record, options: DeleteOptions) -> Deletion:
    """Marks a namespace as Terminating. The namespace controller removes it."""
    if record.name in _PERMANENT_NAMESPACES:
        raise forbidden(NAMESPACES, record.name, "this namespace may not be deleted")
    if is_being_deleted(record.value):
        return Deletion(record, finished=False)
    value = record.value | {"status": record.value["status"] | {"phase": "Terminating"}}
    value["metadata"] = _marked(value, api.timestamp(), None, counts_generations=False)
    return Deletion(api.write(NAMESPACES, value, dry_run=options.dry_run), finished=False)


def _delete_pod(api: Api, record: Record, options: DeleteOptions) -> Deletion:
    """Marks a pod for deletion, and removes it if its grace period is zero and it has no finalizers.

    Watchers see the mark even if the removal follows at once, as with the real server.
    """
    metadata = record.value["metadata"]
    grace = _pod_grace(record.value, options.grace_period_seconds)
    if not is_being_deleted(record.value) or grace < metadata["deletionGracePeriodSeconds"]:
        record = _mark(api, PODS, record, grace, options)
    if grace or metadata.get("finalizers"):
        return Deletion(record, finished=False)
    return _remove(api, PODS, record, options)


def _pod_grace(pod: Object, asked: int | None) -> int:
    """The grace period of a pod in seconds; 0 if it never ran or has ended."""
    current: int | None = pod["metadata"].get("deletionGracePeriodSeconds")
    if not pod["spec"].get("nodeName") or has_ended(pod):
        return 0
    if current is not None:
        return current if asked is None else min(asked, current)
    if asked is not None:
        return asked
    return int(pod["spec"].get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS))


def _mark(
    api: Api,
    kind: Kind,
    record: Record,
    grace: int,
    options: DeleteOptions,
    metadata: Object | None = None,
) -> Record:
    """Marks an object for deletion; ``metadata`` replaces that of the object."""
    metadata = _marked(
        record.value if metadata is None else record.value | {"metadata": metadata},
        format_time(api.now() + grace),
        grace,
        counts_generations=kind.counts_generations,
    )
    return api.write(kind, record.value | {"metadata": metadata}, dry_run=options.dry_run)


def _marked(value: Object, when: str, grace: int | None, *, counts_generations: bool) -> Object:
    """The metadata of an object marked for deletion. The first mark increases the generation."""
    marks: Object = {"deletionTimestamp": when}
    if grace is not None:
        marks["deletionGracePeriodSeconds"] = grace
    if counts_generations and not is_being_deleted(value):
        marks["generation"] = value["metadata"].get("generation", 1) + 1
    metadata: Object = value["metadata"] | marks
    return metadata
