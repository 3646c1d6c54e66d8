"""Carries out the plans for all workloads: one view of what belongs to whom, and one queue."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

from app.model import pod_groups_v1alpha2
from app.sim.api import Api
from app.sim.controllers.controller import Controller
from app.sim.controllers.workloads.daemon_sets import NodeChoice, plan_daemon_set
from app.sim.controllers.workloads.deployments import plan_deployment
from app.sim.controllers.workloads.jobs import is_tracked, plan_job, released
from app.sim.controllers.workloads.plan import (
    BURST,
    Create,
    Delete,
    ObjectChange,
    Plan,
    Replace,
    Scene,
)
from app.sim.controllers.workloads.replica_sets import plan_replica_set
from app.sim.controllers.workloads.revisions import CONTROLLER_REVISIONS
from app.sim.controllers.workloads.stateful_sets import plan_stateful_set
from app.sim.controllers.workloads.templates import REPLICA_SETS
from app.sim.errors import ApiError
from app.sim.objects import (
    controller_reference,
    generated_name,
    is_being_deleted,
    labels_of,
    owner_reference,
    selector_of,
)
from app.sim.resources.deletion import DeleteOptions, delete
from app.sim.resources.kinds import BY_RESOURCE, NODES, PODS, Kind
from app.sim.selectors import selects_labels
from app.sim.store import Key, Object, StoreChange

DAEMON_SETS: Final = BY_RESOURCE["daemonsets.apps"]
JOBS: Final = BY_RESOURCE["jobs.batch"]

RULES: Final[Mapping[Kind, Callable[[Scene], Plan]]] = {
    BY_RESOURCE["deployments.apps"]: plan_deployment,
    REPLICA_SETS: plan_replica_set,
    BY_RESOURCE["replicationcontrollers"]: plan_replica_set,
    BY_RESOURCE["statefulsets.apps"]: plan_stateful_set,
    DAEMON_SETS: plan_daemon_set,
    JOBS: plan_job,
}
_BY_TYPE: Final[Mapping[tuple[str, str], Kind]] = {
    (kind.group_version, kind.kind): kind for kind in RULES
}
_OWNED: Final = (PODS, REPLICA_SETS, CONTROLLER_REVISIONS)
"""Kinds of objects that workloads create and watch."""

_SETTLE_SECONDS: Final = 0.01
_SETTLE_SECONDS_PER_OBJECT: Final = 1e-5
"""Changes of what a workload owns within this time are handled together: a large workload is looked at less often."""
_FIRST_RETRY: Final = 0.5
_LAST_RETRY: Final = 30.0


class WorkloadKey(NamedTuple):
    kind: Kind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.namespace}/{self.name}"


class WorkloadController(Controller[WorkloadKey]):
    """Reconciles each workload after it, or what it owns, has changed."""

    def __init__(self, api: Api) -> None:
        workloads = {kind: partial(self._on_workload, kind) for kind in RULES}
        self._group_kinds = _group_kinds(api)
        self._owned_kinds = (*_OWNED, *(self._group_kinds or ()))
        owned = {kind: partial(self._on_owned, kind) for kind in self._owned_kinds}
        both = {REPLICA_SETS: self._on_replica_set}
        super().__init__(api, workloads | owned | both | {NODES: self._on_node})
        self._owned: dict[str, dict[tuple[Kind, Key], None]] = {}
        """uid of a workload -> what it controls."""
        self._adopted: set[str] = set()
        """Uids of the workloads that have adopted what there was before them."""
        self._released: dict[WorkloadKey, dict[Key, None]] = {}
        """Job -> pods that it does not count any more, and that can still have its finalizer."""
        self._failures: dict[WorkloadKey, int] = {}
        self._choices: dict[str, NodeChoice] = {}
        """uid of a DaemonSet -> the nodes that it wants a pod on."""

    # ------------------------------------------------------------ changes

    def _on_replica_set(self, change: StoreChange) -> None:
        self._on_owned(REPLICA_SETS, change)
        self._on_workload(REPLICA_SETS, change)

    def _on_workload(self, kind: Kind, change: StoreChange) -> None:
        key = WorkloadKey(kind, *change.key)
        if change.type == "DELETED":
            self.cancel(key)
            self._failures.pop(key, None)
            self._adopted.discard(change.record.value["metadata"]["uid"])
            self._choices.pop(change.record.value["metadata"]["uid"], None)
        else:
            self.enqueue(key)
        if kind is JOBS and (change.type == "DELETED" or is_being_deleted(change.record.value)):
            owned = self._owned.get(change.record.value["metadata"]["uid"], ())
            pods = [place for kind, place in owned if kind is PODS]
            self._let_go(key, [*self._released.get(key, ()), *pods])

    def _on_owned(self, kind: Kind, change: StoreChange) -> None:
        value, previous = change.record.value, change.previous
        if "ownerReferences" not in value["metadata"] and (
            previous is None or "ownerReferences" not in previous.value["metadata"]
        ):
            return
        owner = controller_reference(value)
        before = None if previous is None else controller_reference(previous.value)
        entry = (kind, change.key)
        if before is not None and (before != owner or change.type == "DELETED"):
            self._forget(before, entry)
            self._wake(before, change.key[0])
            if kind is PODS and change.type != "DELETED" and is_tracked(value):
                self._let_go(WorkloadKey(JOBS, change.key[0], before["name"]), [change.key])
        if owner is not None and change.type != "DELETED":
            self._owned.setdefault(owner["uid"], {})[entry] = None
            self._wake(owner, change.key[0])

    def _forget(self, owner: Object, entry: tuple[Kind, Key]) -> None:
        owned = self._owned.get(owner["uid"])
        if owned is not None:
            owned.pop(entry, None)
            if not owned:
                del self._owned[owner["uid"]]

    def _wake(self, owner: Object, namespace: str) -> None:
        kind = _BY_TYPE.get((owner.get("apiVersion", ""), owner.get("kind", "")))
        if kind is not None:
            number = len(self._owned.get(owner["uid"], ()))
            delay = _SETTLE_SECONDS + number * _SETTLE_SECONDS_PER_OBJECT
            self.enqueue(WorkloadKey(kind, namespace, owner["name"]), delay)

    def _on_node(self, change: StoreChange) -> None:
        """Nodes concern DaemonSets, unless only their status has changed."""
        daemon_sets = self._api.store[DAEMON_SETS.storage].records
        if daemon_sets and _concerns_daemons(change):
            for choice in self._choices.values():
                choice.forget(change.key[1])
            for key in daemon_sets:
                self.enqueue(WorkloadKey(DAEMON_SETS, *key), _SETTLE_SECONDS)

    # ------------------------------------------------------------ reconciliation

    def reconcile(self, key: WorkloadKey) -> None:
        self._release(key)
        record = self._api.find(key.kind, key.namespace, key.name)
        if record is None or is_being_deleted(record.value):
            return
        try:
            self._adopt(key, record.value)
            if key.kind is DAEMON_SETS and not self._chosen(record.value).look(self._api):
                self.enqueue(key)
                return
            plan = RULES[key.kind](self._scene(key, record.value))
            self._carry_out(key, record.value, plan)
        except Exception:
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            self.enqueue(key, min(_LAST_RETRY, _FIRST_RETRY * 2 ** min(failures, 10)))
            raise
        self._failures.pop(key, None)
        if plan.again is not None and not plan.delete:
            self.enqueue(key, max(_SETTLE_SECONDS, plan.again))

    def _let_go(self, key: WorkloadKey, pods: Iterable[Key]) -> None:
        """Removes the finalizers of pods whose Job is deleted, or is no longer their controller."""
        places = dict.fromkeys(pods)
        if places:
            self._released[key] = self._released.get(key, {}) | places
            self.enqueue(key)

    def _release(self, key: WorkloadKey) -> None:
        pods = self._released.pop(key, {})
        for place in list(pods)[:BURST]:
            del pods[place]
            record = self._api.find(PODS, *place)
            if record is not None and is_tracked(record.value):
                self._act(key, {}, released(record.value))
        self._let_go(key, pods)

    def _carry_out(self, key: WorkloadKey, workload: Object, plan: Plan) -> None:
        """Does what a plan says, a part at a time. The status is written even if an action fails."""
        try:
            for action in plan.actions[:BURST]:
                self._act(key, workload, action)
        finally:
            self._note(key, plan)
        if plan.delete:
            self._delete(key.kind, workload)
        elif len(plan.actions) > BURST:
            self.enqueue(key)

    def _scene(self, key: WorkloadKey, workload: Object) -> Scene:
        found = self._found(workload["metadata"]["uid"])
        return Scene(
            workload=workload,
            pods=found[PODS] if key.kind.kind == "Job" else self._kept(workload, found[PODS]),
            replica_sets=found[REPLICA_SETS],
            revisions=found[CONTROLLER_REVISIONS],
            group_kinds=self._group_kinds,
            group_workloads=found[self._group_kinds[0]] if self._group_kinds else (),
            groups=found[self._group_kinds[1]] if self._group_kinds else (),
            nodes=self._chosen(workload).nodes if key.kind is DAEMON_SETS else (),
            now=self._api.now(),
            timestamp=self._api.timestamp(),
        )

    def _found(self, uid: str) -> dict[Kind, list[Object]]:
        """What the workload with a uid controls."""
        found: dict[Kind, list[Object]] = {kind: [] for kind in self._owned_kinds}
        for kind, owned in list(self._owned.get(uid, ())):
            record = self._api.find(kind, *owned)
            if record is not None:
                found[kind].append(record.value)
        return found

    def _chosen(self, daemon_set: Object) -> NodeChoice:
        """The nodes for the present template of a DaemonSet, as far as they are known."""
        uid, spec = daemon_set["metadata"]["uid"], daemon_set["spec"]["template"]["spec"]
        choice = self._choices.get(uid)
        if choice is None or choice.spec != spec:
            choice = self._choices[uid] = NodeChoice(spec)
        return choice

    def _kept(self, workload: Object, pods: list[Object]) -> list[Object]:
        """The pods that still match the selector. Others are released."""
        selects = _selection(workload)
        kept = []
        for pod in pods:
            if selects(labels_of(pod)):
                kept.append(pod)
            elif not is_being_deleted(pod):
                self._own(PODS, pod, None)
        return kept

    def _adopt(self, key: WorkloadKey, workload: Object) -> None:
        """Takes over what a new workload selects and what has no controller, or one of the same name that is gone."""
        uid = workload["metadata"]["uid"]
        if uid in self._adopted:
            return
        self._adopted.add(uid)
        kinds = (REPLICA_SETS,) if key.kind.kind == "Deployment" else (PODS, CONTROLLER_REVISIONS)
        selects = _selection(workload)
        for kind in kinds:
            for record in list(self._api.store[kind.storage].ordered(namespace=key.namespace)):
                value = record.value
                if (
                    _is_orphan_for(value, key, uid)
                    and not is_being_deleted(value)
                    and selects(labels_of(value))
                ):
                    self._own(kind, value, workload)

    def _own(self, kind: Kind, value: Object, owner: Object | None) -> None:
        """Makes ``owner`` the controller of an object, or nothing."""
        references = value["metadata"].get("ownerReferences", ())
        kept = [each for each in references if not each.get("controller")]
        kept += [] if owner is None else [owner_reference(owner)]
        metadata = value["metadata"] | {"ownerReferences": kept}
        if not kept:
            del metadata["ownerReferences"]
        self._api.write(kind, value | {"metadata": metadata})

    # ------------------------------------------------------------ actions

    def _act(self, key: WorkloadKey, workload: Object, action: ObjectChange) -> None:
        match action:
            case Create(kind, value, if_absent):
                self._create(key, workload, kind, value, if_absent=if_absent)
            case Replace(kind, value):
                self._api.update(kind, key.namespace, value["metadata"]["name"], value)
            case Delete(kind, value):
                self._delete(kind, value)

    def _create(
        self, key: WorkloadKey, workload: Object, kind: Kind, value: Object, *, if_absent: bool
    ) -> None:
        try:
            self._api.create(kind, key.namespace, value)
        except ApiError as error:
            if if_absent and error.reason == "AlreadyExists":
                return
            name, message = generated_name(f"{key.name}."), f"Error creating: {error.message}"
            self.warn(workload, name, "FailedCreate", message, "workload-controller")
            raise

    def _delete(self, kind: Kind, value: Object) -> None:
        namespace, name, uid = (value["metadata"][part] for part in ("namespace", "name", "uid"))
        if self._api.find(kind, namespace, name) is not None:
            delete(self._api, kind, namespace, name, DeleteOptions(uid=uid))

    def _note(self, key: WorkloadKey, plan: Plan) -> None:
        """Writes the status of a workload, if it has changed."""
        record = self._api.find(*key)
        if record is None:
            return
        value = record.value
        known = value["metadata"].get("annotations") or {}
        marked = plan.annotations.items() <= known.items()
        if plan.status == value.get("status") and marked:
            return
        metadata = dict(value["metadata"])
        if not marked:
            metadata["annotations"] = {**known, **plan.annotations}
        self._api.write(key.kind, value | {"metadata": metadata, "status": plan.status})


def _group_kinds(api: Api) -> tuple[Kind, Kind] | None:
    """The kinds of Workloads and PodGroups, if the pods of Jobs are to have them."""
    version = pod_groups_v1alpha2.VERSION
    if "WorkloadWithJob" not in api.features or version not in api.features.versions:
        return None
    return api.kinds.by_type[version, "Workload"], api.kinds.by_type[version, "PodGroup"]


def _selection(workload: Object) -> Callable[[Mapping[str, str]], bool]:
    """The function that says whether labels match the selector of a workload."""
    return selects_labels(selector_of(workload))


def _is_orphan_for(value: Object, key: WorkloadKey, uid: str) -> bool:
    """Whether an object has no controller, or one of the same name with another uid."""
    owner = controller_reference(value)
    if owner is None:
        return True
    return (owner["kind"], owner["name"]) == (key.kind.kind, key.name) and owner["uid"] != uid


def _concerns_daemons(change: StoreChange) -> bool:
    if change.type != "MODIFIED" or change.previous is None:
        return True
    old, new = change.previous.value, change.record.value
    return labels_of(old) != labels_of(new) or old.get("spec") != new.get("spec")
