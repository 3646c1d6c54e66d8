"""Loads a dump, and then a workload, into an embedded cluster."""

import contextlib
import dataclasses
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from app.model.pod_groups import LabelledPodGroup
from app.scheduler.kinds import NAMES, decoders
from app.sim import EmbeddedCluster
from app.sim.errors import ApiError
from app.sim.manifests import LocatedObject, ManifestError, read_objects
from app.sim.resources.kinds import BY_GROUP_KIND, POD_DISRUPTION_BUDGETS, PODS, Kind, is_stored
from app.sim.store import Object, Record
from app.tools.simulate.groups import GROUP_KINDS
from app.tools.simulate.workloads import (
    EXPANDED,
    OwnerKey,
    WorkloadExpander,
    controller_of,
    pod_name,
)
from app.wire.kube import DecodeError

_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
#: File name for standard input, as for kubectl.
STDIN: Path = Path("/dev/stdin")
#: Errors reported at most; more usually have one cause.
_MOST_MISTAKES: Final = 20


class Manifest(NamedTuple):
    """An object of a relevant kind."""

    kind: Kind
    value: dict[str, Any]
    place: str
    """Where it was found, for messages: file, document and item."""


@dataclasses.dataclass(frozen=True, slots=True)
class Manifests:
    """The objects that were read."""

    objects: list[Manifest] = dataclasses.field(default_factory=list)
    passed_over: Counter[str] = dataclasses.field(default_factory=Counter)
    """The number of objects of other kinds."""

    def of(self, kind: str) -> Iterator[Manifest]:
        """The objects of one kind."""
        return (found for found in self.objects if found.kind.kind == kind)


class ManifestErrors:
    """Collects the errors of several files or objects, to report them together."""

    def __init__(self) -> None:
        self._texts: Final[list[str]] = []

    def add(self, text: str) -> None:
        """Adds an error; the text says where it is."""
        self._texts.append(text)

    def check(self) -> None:
        """Raises ManifestError with all errors, if there are any."""
        shown, more = self._texts[:_MOST_MISTAKES], len(self._texts) - _MOST_MISTAKES
        if more > 0:
            shown.append(f"and {more} more mistakes")
        if shown:
            raise ManifestError("\n".join(shown))


def read(paths: Iterable[Path], kinds: Collection[str]) -> Manifests:
    """Reads the objects of these kinds, lists unpacked. Raises ManifestError with all errors."""
    reading, mistakes = Manifests(), ManifestErrors()
    for path in paths:
        try:
            files = list(_files(path))
        except ManifestError as error:
            mistakes.add(str(error))
            continue
        for file in files:
            try:
                for placed in read_objects(file):
                    _sort(placed, kinds, reading)
            except ManifestError as error:
                mistakes.add(str(error))
    mistakes.check()
    return reading


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield STDIN if str(path) == "-" else path
        return
    found = sorted(file for file in path.rglob("*") if file.suffix in _SUFFIXES and file.is_file())
    if not found:
        raise ManifestError(f"{path}: no *.yaml, *.yml or *.json in this folder")
    yield from found


def _sort(placed: LocatedObject, kinds: Collection[str], reading: Manifests) -> None:
    """Keeps an object or counts it. Raises ManifestError if it is not an object."""
    value, place = placed
    name, version = value.get("kind"), value.get("apiVersion")
    if not isinstance(name, str) or not isinstance(version, str) or not name or not version:
        raise ManifestError(f"{place}: no object of Kubernetes: kind or apiVersion is missing")
    kind = BY_GROUP_KIND.get((version, name)) or GROUP_KINDS.get((version, name))
    if name in kinds and kind is not None and is_stored(kind):
        reading.objects.append(Manifest(kind, value, place))
    else:
        reading.passed_over[f"{name} ({version})" if name in kinds else name] += 1


CLUSTER_KINDS: Final = (NAMES - {"LabelledPodGroup"}) | {
    "PriorityClass",
    "ResourceClaimTemplate",
    "RuntimeClass",
    "PodGroup",
    "Workload",
}
"""The kinds read from a dump: those that the scheduler reads, and those needed to admit pods and create claims."""
WORKLOAD_KINDS: Final = CLUSTER_KINDS | EXPANDED
"""The kinds read from a workload."""

_FIRST: Final = ("Namespace", "PriorityClass", "RuntimeClass", "StorageClass", "Workload")
_LAST: Final = ("Node", "Pod")
_DEFAULT_SCHEDULER: Final = "default-scheduler"
_ENDED: Final = frozenset({"Succeeded", "Failed"})

PodKey = tuple[str, str]
"""(namespace, name)."""


@dataclasses.dataclass(slots=True)
class Group:
    """The pods of one workload, which the result shows together."""

    kind: str
    namespace: str
    name: str
    is_from_cluster: bool
    """Whether its pods were pending in the dump."""
    existing: int = 0
    """Pods of it that the cluster had, and that stay."""

    @property
    def title(self) -> str:
        """A unique name: ``Deployment shop/web``."""
        pending = " (pending in the cluster)" if self.is_from_cluster else ""
        return f"{self.kind} {self.namespace}/{self.name}{pending}"


class Loader:
    """Fills a cluster. ``schedulers``: the names that the configuration has profiles for."""

    def __init__(self, cluster: EmbeddedCluster, schedulers: Collection[str]) -> None:
        self._cluster: Final = cluster
        self._schedulers: Final = schedulers
        self._decoders: Final = decoders()
        self._workloads: Final[dict[PodKey, Group]] = {}
        self._waiting: Final[dict[OwnerKey, Group]] = {}
        self.groups: Final[list[Group]] = []
        """Workloads in the order in which they were read; those of pending pods of the dump come first."""
        self.other_schedulers: Final[Counter[str]] = Counter()
        """The number of pods of each scheduler that no profile names."""

    def group_of(self, pod: Object) -> Group | None:
        """The workload whose pods include this one."""
        metadata = pod["metadata"]
        return self._workloads.get((metadata["namespace"], metadata["name"]))

    # ------------------------------------------------------------ the dump

    def load_cluster(self, reading: Manifests) -> None:
        """Restores objects that came from a server and applies the others. Raises ManifestError with all errors."""
        errors = _ObjectErrors()
        for found in sorted(reading.objects, key=_order):
            with errors.noted(found):
                if found.kind is PODS:
                    self._note_pending(found.value)
                value = _prepared(found)
                self._put(found.kind, value, restored=bool(_part(value, "metadata").get("uid")))
        errors.check()

    def _note_pending(self, pod: Object) -> None:
        spec, metadata = _part(pod, "spec"), _part(pod, "metadata")
        ended = _part(pod, "status").get("phase") in _ENDED
        if spec.get("nodeName") or ended or metadata.get("deletionTimestamp"):
            return
        if not self._is_ours(spec):
            return
        namespace, name = metadata.get("namespace") or "default", metadata.get("name", "")
        owner = controller_of({"metadata": metadata | {"namespace": namespace}})
        key: OwnerKey = owner or ("Pod", namespace, name)
        group = self._waiting.get(key)
        if group is None:
            group = self._waiting[key] = Group(*key, is_from_cluster=True)
            self.groups.append(group)
        self._workloads[namespace, name] = group

    def _is_ours(self, spec: Object) -> bool:
        """Whether a profile schedules the pod; other pods are counted."""
        scheduler = spec.get("schedulerName") or _DEFAULT_SCHEDULER
        if scheduler in self._schedulers:
            return True
        self.other_schedulers[scheduler] += 1
        return False

    # ------------------------------------------------------------ the workload

    def load_workload(self, reading: Manifests) -> None:
        """Applies the objects that pods depend on, then the pods, in the order of the files.

        Raises ManifestError with all errors.
        """
        errors = _ObjectErrors()
        expander = WorkloadExpander(self._cluster)
        owners = {_key(found) for found in reading.objects if found.kind.kind in EXPANDED}
        for found in sorted(reading.objects, key=_workload_order):
            with errors.noted(found):
                if not _is_workload(found):
                    self._put(found.kind, found.value)
                elif controller_of(found.value) not in owners:  # which makes it
                    self._add(found, expander)
        errors.check()

    def _add(self, found: Manifest, expander: WorkloadExpander) -> None:
        key = _key(found)
        group = Group(*key, is_from_cluster=False)
        self.groups.append(group)
        if found.kind is PODS:
            self._add_pod(_as_new(found.value), group)
            return
        workload = self._put(found.kind, found.value).value
        group.existing = len(expander.existing(workload))
        self._add_parts(expander.parts(workload), expander, group)

    def _add_parts(
        self, parts: Iterator[tuple[Kind, Object]], expander: WorkloadExpander, group: Group
    ) -> None:
        for kind, value in parts:
            if kind is PODS:
                self._add_pod(value, group)
                continue
            record = self._put(kind, value)
            if kind.kind in EXPANDED:
                self._add_parts(expander.parts(record.value), expander, group)

    def _add_pod(self, pod: Object, group: Group) -> None:
        metadata = _part(pod, "metadata")
        if not metadata.get("name") and metadata.get("generateName"):
            name = pod_name(metadata["generateName"], len(self.groups))
            metadata = metadata | {"name": name}
            group.name, pod = name, pod | {"metadata": metadata}
        namespace, name = metadata.get("namespace") or "default", metadata.get("name", "")
        if self._cluster.api.find(PODS, namespace, name) is not None:
            raise ManifestError("the cluster has a pod of this name already")
        if self._is_ours(_part(pod, "spec")):
            self._workloads[namespace, name] = group
        elif group.kind == PODS.kind:
            self.groups.remove(group)
        self._put(PODS, pod)

    # ------------------------------------------------------------ both

    def _put(self, kind: Kind, value: Object, *, restored: bool = False) -> Record:
        """Stores an object, and checks that the scheduler can decode it. Raises ApiError or DecodeError."""
        kind = self._cluster.api.kinds.by_type[kind.group_version, kind.kind]
        record = (self._cluster.restore if restored else self._cluster.apply)(kind, value)
        is_labelled = kind.group == LabelledPodGroup.GROUP
        decoder = self._decoders.get("LabelledPodGroup" if is_labelled else kind.kind)
        if decoder is not None:
            decoder.decode(record.raw)
        return record


class _ObjectErrors(ManifestErrors):
    """Errors of objects."""

    @contextlib.contextmanager
    def noted(self, found: Manifest) -> Iterator[None]:
        """Collects the error of an object instead of raising it."""
        try:
            yield
        except ApiError as error:
            self.add(_said(found, error.message))
        except (ManifestError, DecodeError) as error:
            self.add(_said(found, str(error)))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            problem = f"{type(error).__name__}: {error}"
            self.add(_said(found, f"a field is missing or has an unexpected form ({problem})"))


def _order(found: Manifest) -> int:
    """Objects that others depend on come first."""
    name = found.kind.kind
    if name in _FIRST:
        return _FIRST.index(name)
    return len(_FIRST) + 1 + _LAST.index(name) if name in _LAST else len(_FIRST)


def _workload_order(found: Manifest) -> int:
    """Objects that pods depend on come first, then workloads in their order."""
    return len(_FIRST) + 1 if _is_workload(found) else _order(found)


def _is_workload(found: Manifest) -> bool:
    return found.kind is PODS or found.kind.kind in EXPANDED


def _prepared(found: Manifest) -> Object:
    """An object of a dump as it is to be stored.

    Terminating namespaces stay, because what blocks their deletion is unknown. Budgets are counted again, because
    preemptions use them up. Pending pods are scheduled again; gated ones are as they were.
    """
    value = found.value
    if found.kind is POD_DISRUPTION_BUDGETS:
        return {part: content for part, content in value.items() if part != "status"}
    if found.kind.kind == "Namespace":
        metadata = {p: v for p, v in _part(value, "metadata").items() if p != "deletionTimestamp"}
        return value | {"metadata": metadata}
    conditions = _part(value, "status").get("conditions")
    if found.kind is PODS and not _part(value, "spec").get("nodeName") and conditions:
        kept = [
            each
            for each in conditions
            if each.get("type") != "PodScheduled" or each.get("reason") == "SchedulingGated"
        ]
        return value | {"status": value["status"] | {"conditions": kept}}
    return value


def _as_new(pod: Object) -> Object:
    """A pod as its owner would create it; one that comes from a server is scheduled again."""
    fresh = {part: value for part, value in pod.items() if part != "status"}
    if _part(pod, "metadata").get("uid"):
        fresh["spec"] = {p: v for p, v in _part(pod, "spec").items() if p != "nodeName"}
    return fresh


def _part(value: Mapping[str, Any], name: str) -> Object:
    """A part of an object that should be a map, for looking at before it is checked."""
    part = value.get(name)
    return part if isinstance(part, dict) else {}


def _key(found: Manifest) -> OwnerKey:
    metadata = _part(found.value, "metadata")
    return found.kind.kind, metadata.get("namespace") or "default", metadata.get("name", "")


def _said(found: Manifest, text: str) -> str:
    metadata = _part(found.value, "metadata")
    names = (metadata.get("namespace"), metadata.get("name"))
    name = "/".join(str(name) for name in names if name)
    return f"{found.place}: {found.kind.kind} {name}: {text}"
