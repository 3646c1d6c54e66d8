"""The verbs of the API on stored objects, without HTTP.

Everything here is synchronous: a request is admitted, validated and written without anything else happening in
between. The HTTP handlers call it, and so do the pretending kubelets and tests.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal

import msgspec

from app.sim.errors import (
    ApiError,
    Cause,
    already_exists,
    bad_request,
    forbidden,
    internal,
    invalid,
    invalid_options,
    modified,
    not_found,
    required,
    uid_mismatch,
    unsupported_media_type,
)
from app.sim.features import NO_FEATURES, ServedFeatures
from app.sim.lookup import Lookup
from app.sim.objects import generated_name, is_being_deleted, new_uid, normalised
from app.sim.patches.json_patch import apply_json_patch, apply_merge_patch
from app.sim.patches.merge_keys import struct_of
from app.sim.patches.strategic_merge import apply_strategic_merge
from app.sim.resources.custom import CustomResourceDefinitionStrategy
from app.sim.resources.defaults import set_defaults
from app.sim.resources.devices.strategies import (
    DeviceClassStrategy,
    DeviceTaintRuleStrategy,
    ResourceClaimStrategy,
    ResourceClaimTemplateStrategy,
    ResourceSliceStrategy,
)
from app.sim.resources.event_versions import EVENTS_V1, event_mistakes, shown, stored
from app.sim.resources.kinds import (
    EVENTS,
    NAMESPACES,
    RESOURCE_QUOTAS,
    Kind,
)
from app.sim.resources.pod_groups import GroupWorkloadStrategy, PodGroupStrategy
from app.sim.resources.pods import PodStrategy
from app.sim.resources.quotas import (
    LimitRangeStrategy,
    QuotaUse,
    ResourceQuotaStrategy,
    admit_quota,
)
from app.sim.resources.services import ServiceStrategy
from app.sim.resources.strategy import (
    WITH_STATUS,
    WITHOUT_STATUS,
    ClaimStrategy,
    DisruptionBudgetStrategy,
    FreshStatus,
    KindStrategy,
    PriorityClassStrategy,
)
from app.sim.resources.validation import metadata_mistakes, metadata_update_mistakes
from app.sim.resources.workloads import WorkloadStrategy
from app.sim.store import Key, Object, Record

_STRATEGIES: Final[Mapping[str, KindStrategy]] = {
    "pods": PodStrategy(),
    "namespaces": FreshStatus({"phase": "Active"}),
    "persistentvolumes": FreshStatus({"phase": "Pending"}),
    "persistentvolumeclaims": ClaimStrategy(),
    "poddisruptionbudgets.policy": DisruptionBudgetStrategy(),
    "priorityclasses.scheduling.k8s.io": PriorityClassStrategy(),
    "services": ServiceStrategy(),
    "podgroups.scheduling.k8s.io": PodGroupStrategy(),
    "workloads.scheduling.k8s.io": GroupWorkloadStrategy(),
    "resourcequotas": ResourceQuotaStrategy(),
    "limitranges": LimitRangeStrategy(),
    "customresourcedefinitions.apiextensions.k8s.io": CustomResourceDefinitionStrategy(),
    "replicationcontrollers": WorkloadStrategy("map"),
    "replicasets.apps": WorkloadStrategy(),
    "deployments.apps": WorkloadStrategy(),
    "statefulsets.apps": WorkloadStrategy(),
    "daemonsets.apps": WorkloadStrategy(),
    "jobs.batch": WorkloadStrategy("none"),
    "deviceclasses.resource.k8s.io": DeviceClassStrategy(),
    "devicetaintrules.resource.k8s.io": DeviceTaintRuleStrategy(),
    "resourceclaims.resource.k8s.io": ResourceClaimStrategy(),
    "resourceclaimtemplates.resource.k8s.io": ResourceClaimTemplateStrategy(),
    "resourceslices.resource.k8s.io": ResourceSliceStrategy(),
}


def strategy_of(kind: Kind) -> KindStrategy:
    """The rules of a kind."""
    common = WITH_STATUS if kind.has_status else WITHOUT_STATUS
    return _STRATEGIES.get(kind.resource, common)


JSON_PATCH: Final = "application/json-patch+json"
MERGE_PATCH: Final = "application/merge-patch+json"
STRATEGIC_PATCH: Final = "application/strategic-merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
PATCH_TYPES: Final = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY_PATCH)

_Outcome = tuple[Record, Literal["created", "updated"]]
"""The object after the request, and whether the request created it."""

_NAME_ATTEMPTS: Final = 8
_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)
_decode: Final = msgspec.json.Decoder().decode


class Api(Lookup):
    """The objects of the cluster and the rules by which they change."""

    def __init__(
        self,
        *,
        now: Callable[[], float],
        history_limit: int = 10_000,
        features: ServedFeatures = NO_FEATURES,
    ) -> None:
        super().__init__(now=now, history_limit=history_limit, features=features)
        self.quota_use = QuotaUse(self.store)

    def write(self, kind: Kind, value: Object, *, dry_run: bool = False) -> Record:
        """Stores a complete object. ``value`` and its metadata must not be changed afterwards."""
        metadata = value["metadata"]
        if dry_run:
            return Record(value, self.store.revision)
        return self.store.put(
            kind.storage, (metadata.get("namespace", ""), metadata["name"]), value
        )

    def write_status(
        self, kind: Kind, value: Object, status: Object, *, dry_run: bool = False
    ) -> Record:
        """Stores a stored object with another status."""
        changed = value | {"metadata": dict(value["metadata"]), "status": status}
        return self.write(kind, changed, dry_run=dry_run)

    def create(self, kind: Kind, namespace: str, body: Any, *, dry_run: bool = False) -> Record:
        """Creates an object. Raises 400, 403, 404 (namespace), 409 or 422."""
        with _judging(kind):
            value = self._new_object(kind, namespace, body)
        key = self._key(kind, namespace, value["metadata"]["name"])
        existing = self.store[kind.storage].records.get(key)
        if existing is not None:
            raise already_exists(kind, key[1], is_going=is_being_deleted(existing.value))
        if kind.namespaced and self.store[RESOURCE_QUOTAS.storage].records:
            admit_quota(self, self.quota_use, kind, value)
        return self.write(kind, value, dry_run=dry_run)

    def restore(self, kind: Kind, namespace: str, body: Any) -> Record:
        """Stores an object as it was on another server, with its uid, times and status and without admission.

        It replaces one of the same name. Raises 400 or 422.
        """
        with _judging(kind):
            value = stored(kind, normalised(kind, body))
            metadata = value["metadata"]
            _place(metadata, kind, namespace)
            metadata.setdefault("uid", new_uid())
            metadata.setdefault("creationTimestamp", self.timestamp())
            if kind.counts_generations:
                metadata.setdefault("generation", 1)
            if is_being_deleted(value):
                metadata.setdefault("deletionGracePeriodSeconds", 0)
            _check(kind, value, metadata_mistakes(kind, value))
            set_defaults(kind.storage, value)
            _check(kind, value, strategy_of(kind).mistakes(value))
        return self.write(kind, value)

    def _new_object(self, kind: Kind, namespace: str, body: Any) -> Object:
        value = stored(kind, normalised(kind, body))
        metadata = value["metadata"]
        _place(metadata, kind, namespace)
        if metadata.get("resourceVersion"):
            raise internal("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = self._free_name(kind, namespace, metadata["generateName"])
        self._check_namespace(kind, namespace, metadata.get("name", ""))
        self._own_metadata(kind, value)
        _check(kind, value, metadata_mistakes(kind, value))
        set_defaults(kind.storage, value)
        strategy = strategy_of(kind)
        strategy.admit(value, self)
        if kind.storage == EVENTS.storage:
            _check(kind, value, event_mistakes(value, as_events_v1=kind is EVENTS_V1))
        _check(kind, value, strategy.mistakes(value) + strategy.create_mistakes(value, self))
        strategy.prepare_for_create(value, self)
        return value

    def _free_name(self, kind: Kind, namespace: str, prefix: str) -> str:
        """A name with this prefix that no object has, unless some attempts find none."""
        for _ in range(_NAME_ATTEMPTS):
            name = generated_name(prefix)
            if self._key(kind, namespace, name) not in self.store[kind.storage].records:
                break
        return name

    def _own_metadata(self, kind: Kind, value: Object) -> None:
        """Sets the metadata that the server owns on a new object."""
        given = value["metadata"]
        first = {
            name: given[name] for name in ("name", "generateName", "namespace") if name in given
        }
        owned: Object = {"uid": new_uid(), "resourceVersion": ""}
        if kind.counts_generations:
            owned["generation"] = 1
        owned["creationTimestamp"] = self.timestamp()
        skipped = {*_SERVER_OWNED, "resourceVersion", "generation"}
        rest = {name: part for name, part in given.items() if name not in skipped}
        value["metadata"] = first | owned | rest

    def _check_namespace(self, kind: Kind, namespace: str, name: str) -> None:
        """Raises 404 if the namespace of a new object does not exist, 403 if it is being deleted."""
        if not kind.namespaced:
            return
        record = self.get(NAMESPACES, "", namespace)
        if is_being_deleted(record.value):
            why = f"unable to create new content in namespace {namespace} because it is being terminated"
            text = f"namespace {namespace} is being terminated"
            cause = Cause("NamespaceTerminating", text, "metadata.namespace")
            raise forbidden(kind, name, why, causes=[cause])

    def update(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        *,
        subresource: str = "",
        dry_run: bool = False,
    ) -> _Outcome:
        """Replaces an object, or its status. Raises 400, 404, 409 or 422."""
        with _judging(kind):
            value = stored(kind, normalised(kind, body))
        value["metadata"].setdefault("name", name)
        _check_name(value, name)
        current = self.find(kind, namespace, name)
        if current is None:
            if kind.create_on_update and not subresource:
                return self.create(kind, namespace, body, dry_run=dry_run), "created"
            raise not_found(kind, name)
        uid = value["metadata"].get("uid", "")
        if uid and uid != current.value["metadata"]["uid"]:
            found = current.value["metadata"]["uid"]
            raise uid_mismatch(kind, namespace, name, wanted=uid, found=found)
        return self._replace(kind, current, value, subresource, dry_run=dry_run), "updated"

    def _replace(
        self, kind: Kind, current: Record, value: Object, subresource: str, *, dry_run: bool
    ) -> Record:
        """Replaces ``current`` by ``value``, which is in the stored version, by the rules of its kind."""
        old = current.value
        _place(value["metadata"], kind, current.namespace)
        seen = value["metadata"].get("resourceVersion")
        if seen and seen != str(current.revision):
            raise modified(kind, current.name)
        _check(kind, old, metadata_update_mistakes(value, old))
        with _judging(kind):
            value = self._updated_object(kind, value, old, subresource)
        value["metadata"] = _updated_metadata(kind, value, old)
        if value == old:
            return current
        _check(kind, old, metadata_mistakes(kind, value))
        if is_being_deleted(value) and _may_vanish(value):
            return current if dry_run else self._remove_as(kind, value)
        return self.write(kind, value, dry_run=dry_run)

    def _updated_object(self, kind: Kind, value: Object, old: Object, subresource: str) -> Object:
        strategy = strategy_of(kind)
        if subresource == "status":
            merged = old | {"metadata": value["metadata"], "status": value.get("status")}
            merged = {name: part for name, part in merged.items() if part is not None}
            set_defaults(kind.storage, merged)
            strategy.prepare_status(merged, old)
            _check(kind, old, strategy.status_mistakes(merged, old, self))
            return merged
        set_defaults(kind.storage, value)
        strategy.prepare_for_update(value, old, self)
        _check(kind, old, strategy.mistakes(value) + strategy.update_mistakes(value, old))
        return value

    def _remove_as(self, kind: Kind, value: Object) -> Record:
        """Removes an object whose last finalizer is removed. Watchers and the caller see it without finalizers."""
        key = (value["metadata"].get("namespace", ""), value["metadata"]["name"])
        self.write(kind, value)
        return self.store.remove(kind.storage, key)

    def patch(
        self,
        kind: Kind,
        namespace: str,
        name: str,
        body: Any,
        *,
        patch_type: str,
        field_manager: str = "",
        subresource: str = "",
        dry_run: bool = False,
    ) -> _Outcome:
        """Applies a patch of one of PATCH_TYPES. Raises 400, 404, 409, 415 or 422."""
        if patch_type not in PATCH_TYPES:
            raise unsupported_media_type(PATCH_TYPES)
        if patch_type == APPLY_PATCH and not field_manager:
            cause = required("fieldManager", "is required for apply patch")
            raise invalid_options("PatchOptions", [cause])
        current = self.find(kind, namespace, name)
        if current is None:
            if patch_type == APPLY_PATCH and not subresource:
                return self.create(kind, namespace, body, dry_run=dry_run), "created"
            raise not_found(kind, name)
        old: Object = _decode(current.raw)
        with _judging(kind):
            patched = _patched(kind, shown(kind, old), body, patch_type)
            value = stored(kind, normalised(kind, patched))
        _check_name(value, name)
        return self._replace(kind, current, value, subresource, dry_run=dry_run), "updated"

    def _key(self, kind: Kind, namespace: str, name: str) -> Key:
        return (namespace if kind.namespaced else ""), name


@contextmanager
def _judging(kind: Kind) -> Iterator[None]:
    """Turns the exception for an object of the wrong shape (a string instead of a list) into a 400."""
    try:
        yield
    except ApiError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
        raise bad_request(
            f"{kind.kind} cannot be handled: a field has an unexpected form ({problem})"
        ) from error


def _check(kind: Kind, value: Object, causes: list[Cause]) -> None:
    if causes:
        raise invalid(kind, value["metadata"].get("name", ""), causes)


def _check_name(value: Object, name: str) -> None:
    given = value["metadata"].get("name", "")
    if given != name:
        raise bad_request(
            f"the name of the object ({given}) does not match the name on the URL ({name})"
        )


def _place(metadata: Object, kind: Kind, namespace: str) -> None:
    """Sets the namespace of the request. Raises 400 if the object names another one."""
    if not kind.namespaced:
        metadata.pop("namespace", None)
        return
    if metadata.setdefault("namespace", namespace) != namespace:
        raise bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def _updated_metadata(kind: Kind, value: Object, old: Object) -> Object:
    """The metadata of an update: the client's labels, annotations, owners and finalizers, and the
    server's own fields.
    """
    before, given = old["metadata"], value["metadata"]
    free = ("labels", "annotations", "ownerReferences", "finalizers")
    metadata = {name: part for name, part in before.items() if name not in free}
    metadata |= {name: given[name] for name in free if given.get(name)}
    if kind.counts_generations and _content(value) != _content(old):
        metadata["generation"] = before["generation"] + 1
    return metadata


def _content(value: Object) -> Object:
    return {name: part for name, part in value.items() if name not in ("metadata", "status")}


def _may_vanish(value: Object) -> bool:
    """Whether an object is being deleted and has no finalizers left."""
    metadata = value["metadata"]
    held = metadata.get("finalizers") or value.get("spec", {}).get("finalizers")
    return not held and not metadata.get("deletionGracePeriodSeconds")


def _patched(kind: Kind, old: Object, body: Any, patch_type: str) -> Any:
    if patch_type == JSON_PATCH:
        return apply_json_patch(old, body)
    if patch_type == MERGE_PATCH:
        if not isinstance(body, dict):
            raise bad_request("error decoding patch: a merge patch is an object")
        return apply_merge_patch(old, body)
    return apply_strategic_merge(old, body, struct_of(kind.storage))
