"""Helpers for tests of plugins: a cluster without a scheduler, objects to fill it, and effects that record requests.

::

    cluster = FakeCluster(make_node("a", labels={"zone": "z1"}), make_node("b"))
    plugin = MyFilter({"zone": "z1"}, cluster.handle)
    assert cluster.judge(plugin, make_pod()) == {"b": unschedulable("node(s) were in another zone")}
    cluster.check(plugin, make_pod(), make_pod(labels={"app": "web"}))

Plugins run in a real Framework, so results of NodeLocal plugins are kept and computed again as in the scheduler.
docs/plugins.md shows more.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar

import msgspec

from app.framework import contract
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction, FixedWaitingPods, Handle, WaitingPod
from app.framework.interface import CycleState, Plugin
from app.framework.memo import FilterPass, TemplateMemo
from app.framework.plugin_class import points_of
from app.framework.profile import ProfilePlugins
from app.framework.runner import Framework, PreFilterRejected
from app.model.clock import Clock
from app.model.cluster_event import (
    ASSIGNED_POD_ADD,
    ASSIGNED_POD_DELETE,
    NODE_ADD,
    NODE_DELETE,
    UNSCHEDULABLE_POD_ADD,
    UNSCHEDULABLE_POD_DELETE,
    ClusterEvent,
    Resource,
    action_of,
)
from app.model.devices import ResourceClaim
from app.model.objects import Named, Node
from app.model.pod import Pod
from app.model.status import SUCCESS, ConflictError, SchedulingError, Status
from app.model.storage import PersistentVolume, PersistentVolumeClaim
from app.state.cluster import Cluster
from app.state.columns.arrays import Rows
from app.state.nominations import NO_PODS
from app.state.queue.hints import EventRegistration, narrowed, with_taint_registrations
from app.state.queue.update_events import node_update_events, pod_update_events
from app.state.table import NodeTable
from app.state.view import View
from app.wire.extender_v1 import Victims
from app.wire.kube import NodeDecoder, PodDecoder, decoder_for

K = TypeVar("K", bound=Named)

PROFILE: Final = "default-scheduler"

#: A part of a manifest, with the API's field names.
Manifest = Mapping[str, Any]

_ALLOCATABLE: Final = {"cpu": "4", "memory": "16Gi", "pods": "110"}
_CONTAINER: Final = {"name": "main", "image": "registry.example.com/app:1"}
#: One for all tests, so that pods with equal specs share their template, as in a real cluster.
_PODS: Final = PodDecoder()
_NODES: Final = NodeDecoder()


def make_node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    spec: Manifest | None = None,
    status: Manifest | None = None,
) -> Node:
    """A node, by default with 4 CPUs, 16 GiB and room for 110 pods. Raises DecodeError."""
    manifest = {
        "metadata": {"name": name, "labels": labels or {}, "annotations": annotations or {}},
        "spec": spec or {},
        "status": {"allocatable": _ALLOCATABLE} | dict(status or {}),
    }
    return _NODES.decode(msgspec.json.encode(manifest))


def make_pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    spec: Manifest | None = None,
) -> Pod:
    """A pod without a node; its uid is derived from its name. By default it has one container without requests.

    Pods with equal specs share their template. Raises DecodeError.
    """
    uid = f"uid-of-{namespace}-{name}"
    manifest = {
        "metadata": {"name": name, "namespace": namespace, "uid": uid, "labels": labels or {}},
        "spec": {"schedulerName": PROFILE, "containers": [_CONTAINER]} | dict(spec or {}),
    }
    return _PODS.decode(msgspec.json.encode(manifest))


def make_object(kind: type[K], manifest: Manifest) -> K:
    """An object of any other kind in app.model.objects. Raises DecodeError."""
    return decoder_for(kind).decode(msgspec.json.encode(manifest))


class FakeCluster:
    """Nodes, pods, and all other objects that a plugin may look up."""

    def __init__(
        self, *nodes: Node, waiting: Iterable[WaitingPod] = (), clock: Clock | None = None
    ) -> None:
        """``waiting`` and ``clock`` are those of ``handle``; by default no pod waits and the clock returns 0."""
        self._table: Final = NodeTable()
        #: The second argument of plugins' constructors.
        self.handle: Final = Handle(
            self._table, Cluster(), PROFILE, waiting=FixedWaitingPods(waiting), clock=clock
        )
        self._frameworks: Final[dict[int, tuple[Plugin, Framework]]] = {}
        for node in nodes:
            self.set_node(node)

    # ------------------------------------------------------------ what there is

    def set_node(self, node: Node) -> None:
        """Adds or replaces a node."""
        self._table.set_node(node)

    def remove_node(self, name: str) -> None:
        """Removes a node. Raises KeyError."""
        self._table.remove_node(name)

    def place(self, pod: Pod, node_name: str) -> Pod:
        """Adds a pod to a node; returns the pod with its node name."""
        placed = pod.on(node_name)
        self._table.add_pod(placed)
        return placed

    def remove(self, placed: Pod) -> None:
        """Removes a pod from its node. Raises KeyError."""
        self._table.remove_pod(placed)

    def store(self, *objects: Named) -> None:
        """Adds or replaces objects of other kinds in ``handle.cluster``."""
        for obj in objects:
            self.handle.cluster.lister(type(obj)).store(obj)

    # ------------------------------------------------------------ what the plugin says

    def judge(self, plugin: Plugin, pod: Pod) -> dict[str, Status]:
        """Runs the plugin's PreFilter and Filter; returns the status of each rejected node by name.

        Raises SchedulingError if the plugin returns Code.Error.
        """
        framework, state, memo = self._attempt(plugin, pod)
        try:
            filtered = framework.filter(state, pod, memo, NO_PODS)
        except PreFilterRejected as rejected:
            status = msgspec.structs.replace(rejected.status, plugin="")
            return dict.fromkeys(self._names(self._table.live_rows()), status)
        return dict(self._rejections(filtered))

    def score(self, plugin: Plugin, pod: Pod) -> dict[str, int]:
        """Runs the plugin's PreScore, Score and ``normalize``; returns the score, 0 to 100, of each feasible node by
        name.

        Raises SchedulingError for a score outside this range.
        """
        framework, state, memo = self._attempt(plugin, pod)
        try:
            rows = framework.filter(state, pod, memo, NO_PODS).outcome.feasible()
        except PreFilterRejected:
            return {}
        scores = framework.scoring.score(state, pod, memo, View(self._table, rows))
        return dict(zip(self._names(rows), scores.tolist(), strict=True))

    def wakes(
        self,
        plugin: Plugin,
        pod: Pod,
        *,
        old: Named | Pod | None = None,
        new: Named | Pod | None = None,
    ) -> bool:
        """Whether the change of an object moves a pod that the plugin rejected.

        ``old`` is None for an addition, ``new`` for a deletion. The cluster is not changed.
        """
        framework = self.framework(plugin)
        registrations = with_taint_registrations(framework.queueing_hints())
        return any(
            _welcomes(registration, pod, old, new)
            for event in events_of(old, new)
            for registration in registrations
            if registration.event.matches(event)
        )

    def check(self, plugin: Plugin, *pods: Pod) -> None:
        """Checks with these pods and the present cluster that the plugin keeps all rules that the scheduler relies
        on.

        Raises ContractError with all findings. It finds only what these nodes and pods show: use nodes that differ,
        pods that are rejected and pods that are not.
        """
        contract.check(plugin, self._table, pods)

    # ------------------------------------------------------------ parts

    def _attempt(self, plugin: Plugin, pod: Pod) -> tuple[Framework, CycleState, TemplateMemo]:
        framework = self.framework(plugin)
        memo = framework.memo(pod)
        return framework, CycleState(memo.local.state), memo

    def framework(self, plugin: Plugin) -> Framework:
        """The framework of a profile with this plugin only; one per instance."""
        known = self._frameworks.get(id(plugin))
        if known is None:
            plugins = ProfilePlugins({point: [plugin] for point in points_of(plugin)}, {})
            known = self._frameworks[id(plugin)] = (
                plugin,
                Framework(PROFILE, plugins, self._table),
            )
        return known[1]

    def _rejections(self, filtered: FilterPass) -> Iterator[tuple[str, Status]]:
        outcome = filtered.outcome
        rows = self._table.live_rows()
        diagnosis = Diagnosis(node_count=len(rows), outcome=outcome, absent=filtered.absent)
        feasible = set(outcome.feasible().tolist())
        for row in rows.tolist():
            if row not in feasible:
                status = msgspec.structs.replace(diagnosis.status(row), plugin="")
                yield self._table.names[row], status

    def _names(self, rows: Rows) -> list[str]:
        return [self._table.names[row] for row in rows.tolist()]


def _welcomes(registration: EventRegistration, pod: Pod, old: object, new: object) -> bool:
    few = narrowed((registration,), pod.template, old, new)
    if few is not None and pod.uid not in few:
        return False
    return registration.hint is None or registration.hint(pod, old, new)


class FakeClaims:
    """An in-memory API server for ResourceClaims, by namespace and name; every write increments the version."""

    def __init__(self) -> None:
        self.objects: Final[dict[tuple[str, str], ResourceClaim]] = {}
        #: The requests in order: verb and key of the claim.
        self.calls: Final[list[tuple[str, str]]] = []
        #: (pod, status.extendedResourceClaimStatus) per status that was written.
        self.told: Final[list[tuple[Pod, Mapping[str, Any]]]] = []
        self._version = 1000

    def store(self, claim: ResourceClaim) -> ResourceClaim:
        """Stores a claim; returns it."""
        self.objects[claim.namespace, claim.name] = claim
        return claim

    async def get(self, namespace: str, name: str) -> ResourceClaim:
        """Returns the claim. Raises SchedulingError."""
        claim = self.objects.get((namespace, name))
        if claim is None:
            raise SchedulingError(f'resourceclaims.resource.k8s.io "{name}" not found')
        return claim

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Creates a claim, named by its generateName and a number."""
        self._version += 1
        name = f"{claim.metadata.generate_name}{self._version}"
        manifest = msgspec.to_builtins(claim)
        manifest["metadata"] |= {"name": name, "uid": f"uid-of-{name}"}
        return self._write("create", manifest)

    async def patch(
        self, claim: ResourceClaim, changes: Mapping[str, Any], *, status: bool = False
    ) -> ResourceClaim:
        """Patches the claim. Raises ConflictError if another version is stored."""
        stored = await self.get(claim.namespace, claim.name)
        if stored.resource_version != claim.resource_version:
            raise ConflictError(
                f'Operation cannot be fulfilled on resourceclaims.resource.k8s.io "{claim.name}"'
            )
        manifest = _merged(msgspec.to_builtins(stored), changes)
        return self._write("patch status" if status else "patch", manifest)

    async def add_finalizer(self, claim: ResourceClaim, finalizer: str) -> ResourceClaim:
        """Adds a finalizer. Raises ConflictError if another version is stored."""
        finalizers = [*(claim.metadata.finalizers or ()), finalizer]
        return await self.patch(claim, {"metadata": {"finalizers": finalizers}})

    async def delete(self, claim: ResourceClaim) -> None:
        """Deletes the claim."""
        await self.get(claim.namespace, claim.name)
        self.calls.append(("delete", claim.key))
        del self.objects[claim.namespace, claim.name]

    async def tell_pod(self, pod: Pod, status: Mapping[str, Any]) -> None:
        """Records the request."""
        self.told.append((pod, status))

    def _write(self, verb: str, manifest: dict[str, Any]) -> ResourceClaim:
        self._version += 1
        manifest["metadata"]["resourceVersion"] = str(self._version)
        claim = decoder_for(ResourceClaim).decode(msgspec.json.encode(manifest))
        self.calls.append((verb, claim.key))
        return self.store(claim)


def _merged(into: Any, patch: Any) -> Any:
    """Applies a JSON merge patch (RFC 7386)."""
    if not isinstance(patch, Mapping):
        return patch
    base = dict(into) if isinstance(into, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            base.pop(key, None)
        else:
            base[key] = _merged(base.get(key), value)
    return base


class FakeEffects:
    """Effects that record the requests; time advances only in sleep()."""

    def __init__(self, now: float = 0.0) -> None:
        """``now``: seconds since the epoch."""
        self._now = now
        #: (pod, node name) per Binding.
        self.bound: Final[list[tuple[Pod, str]]] = []
        #: By pod key: the labels and annotations that the Binding adds.
        self.told: Final[dict[str, dict[str, dict[str, str]]]] = {}
        #: (object, changes) per update of a volume or claim.
        self.updated: Final[
            list[tuple[PersistentVolume | PersistentVolumeClaim, Mapping[str, Any]]]
        ] = []
        self.evicted: Final[list[Eviction]] = []
        self.resource_claims: Final = FakeClaims()
        #: (pod, reason, note) per event.
        self.events: Final[list[tuple[Pod, str, str]]] = []

    def latest(self, pod: Pod) -> Pod:
        """Returns the pod."""
        return pod

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:  # noqa: ARG002
        """Records the request."""
        self.events.append((pod, reason, note))

    def asks_about_victims(self, _pod: Pod) -> bool:
        """False: there are no extenders."""
        return False

    async def agree_on_victims(
        self, _pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        """Returns all candidates."""
        return candidates

    def evict(self, eviction: Eviction) -> None:
        """Records the request."""
        self.evicted.append(eviction)

    async def bind(
        self,
        pod: Pod,
        node_name: str,
        *,
        labels: Mapping[str, str] = {},
        annotations: Mapping[str, str] = {},
    ) -> Status:
        """Records the request: in ``bound``, and in ``told`` what is added to the pod."""
        self.bound.append((pod, node_name))
        self.told[pod.key] = {"labels": dict(labels), "annotations": dict(annotations)}
        return SUCCESS

    async def update_volume(self, volume: PersistentVolume, changes: Mapping[str, Any]) -> None:
        """Records the request."""
        self.updated.append((volume, changes))

    async def update_claim(self, claim: PersistentVolumeClaim, changes: Mapping[str, Any]) -> None:
        """Records the request."""
        self.updated.append((claim, changes))

    async def sleep(self, seconds: float) -> None:
        """Advances the time at once."""
        self._now += seconds

    def now(self) -> float:
        """Seconds since the epoch."""
        return self._now


def events_of(old: Named | Pod | None, new: Named | Pod | None) -> list[ClusterEvent]:
    """The cluster events of a change (``old`` None: added, ``new`` None: deleted); [] for kinds that wake no pod."""
    if isinstance(old, Pod) or isinstance(new, Pod):
        return _pod_events(old, new)
    if isinstance(old, Node) and isinstance(new, Node):
        return node_update_events(old, new)
    if isinstance(old, Node) or isinstance(new, Node):
        return [NODE_ADD if old is None else NODE_DELETE]
    resource = Resource.__members__.get(type(new if old is None else old).__name__)
    if resource is None:
        return []
    return [ClusterEvent(resource, action_of(old, new))]


def _pod_events(old: object, new: object) -> list[ClusterEvent]:
    if isinstance(old, Pod) and isinstance(new, Pod):
        if new.node_name and not old.node_name:
            return [ASSIGNED_POD_ADD]
        return pod_update_events(old, new)
    if isinstance(new, Pod):
        return [ASSIGNED_POD_ADD if new.node_name else UNSCHEDULABLE_POD_ADD]
    bound = isinstance(old, Pod) and old.node_name
    return [ASSIGNED_POD_DELETE if bound else UNSCHEDULABLE_POD_DELETE]
