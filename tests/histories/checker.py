"""What must hold, judged by what the model server has stored and what each process had been told.

After each request that leaves a process and each write that the server stores:

* nothing is written by a process that does not hold the lease, by its own clock and the renewals it has had confirmed;
* no pod is bound twice, and none that was not decided about;
* no binding puts more on a node than it has, or breaks anti-affinity or a host port, or goes to a node that takes no
  such pod, or that does not reach the pod's volumes and devices;
* no volume and no device is given to a second claim, and no pod is evicted for none of higher priority;
* no pod is tried before an active one of higher priority, or before one that came earlier and needs the same; none
  overtakes a gang that comes before it, at an extender that is called for one pod at a time;
* no binding of a gang is started before as many of its pods have a node as it needs;
* no call of an extender waits there beyond its timeout, but for the first ten seconds;
* a pod whose binding is refused because its node is locked is bound to that node later, and not decided again;
* no status is written to a pod other than the one it is about, and none that says a bound pod cannot be scheduled.

A process cannot know what it has not been told. So a rule is broken only if it is broken as things are *and* as the
process had been told when it decided; and what a request does long after its sender has given it up is nobody's fault.

Every second: each pod is in at most one place of the scheduler's books, and none that waits for its group to be
complete is nominated. Once nothing fails any more: what fits is bound, and the books of the scheduler say what the
server says, no more and no less (``unsettled``).
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from app.framework.handle import Eviction
from app.plugins.gang_scheduling import GangScheduling
from app.scheduler.node_locks import LONGEST_LOCK
from app.state.queue.queued_pod import IN_FLIGHT, OUTSIDE, QueuedPod
from tests.histories import apiserver, devices, rules, storage
from tests.histories.apiserver import (
    DEVICE_CLAIMS,
    NODES,
    POD_GROUPS,
    PODS,
    VOLUMES,
    Answer,
    ApiServer,
    Manifest,
    Write,
    is_live,
    key_of,
)
from tests.histories.extenders import Extender
from tests.histories.faults import CALLS
from tests.histories.network import Request
from tests.histories.replica import Decision, Replica, View, Watcher
from tests.histories.shape import IN_ORDER
from tests.histories.simulation import Simulation
from tests.histories.workload import PROFILE

#: Requests that only a leader may send.
_GUARDED = frozenset(
    {"bind", "patch status", "delete pod", "patch volume", "event", *CALLS, "extender release"}
)
#: Tasks that a process has while it runs; all others end.
_ETERNAL = ("process", "watch ", "events", "lease events", "event loop lag", "election", "schedule", "wait for",
            "flush queue", "scheduling loop", "free memory")  # fmt: skip
#: The timeout of the extender whose calls wait, and for how long a process may call it too often, seconds.
TIMEOUT, LEARNING = 5.0, 10.0
#: Seconds for which a gang waits at most while there is room for it, nothing fails and a process leads. Most of it is
#: the time for which a binding that was not answered may still take effect.
LONGEST_WAIT = 75


#: Seconds within which a process asks again to bind a pod whose node is locked.
_NEXT_TRY = 1.0


class Checker(Watcher):
    """Watches one history. ``violations`` says what went wrong."""

    def __init__(
        self, simulation: Simulation, server: ApiServer, tell: Callable[[str, str], None]
    ) -> None:
        self._simulation = simulation
        self._server = server
        self._tell = tell
        self.violations: list[str] = []
        self.extenders: list[Extender] = []
        #: By uid: the process that has bound a pod, and knew, or could have asked, that it had.
        self._bound_by: dict[str, Replica] = {}
        #: By uid of a claim for devices: the process that has given it its devices.
        self._allocated_by: dict[str, Replica] = {}
        #: The victims of the evictions that a process has started, by uid.
        self._victims: defaultdict[Replica, set[str]] = defaultdict(set)
        #: When a process has called an extender first.
        self._called: dict[Replica, float] = {}
        #: By process and uid: the node that was locked when an extender was asked to bind a pod, when that was, and
        #: what could lead to another decision.
        self._locked: dict[tuple[Replica, str], tuple[str, float, object]] = {}
        #: For how long there has been room for a gang that waits, by name, seconds.
        self._waited: Counter[str] = Counter()

    def violated(self, text: str) -> None:
        self._tell("VIOLATION", text)
        self.violations.append(text)

    # ------------------------------------------------------------ what leaves a process

    def sent(self, request: Request) -> None:
        """See Watcher."""
        sender = request.sender
        if request.kind in _GUARDED and not sender.leads:
            late = request.sent_at - sender.trusted_until
            self.violated(f"{sender.name} sends {request} {late:.3f} s after it has lost the lease")
        if request.kind == "bind":
            self._binds(request)
        elif request.kind == "delete pod":
            self._evicts(request)
        elif request.kind in CALLS:
            self._calls(request)

    def _binds(self, request: Request) -> None:
        sender, binding = request.sender, apiserver.decode(request.body)
        uid, node = binding["metadata"].get("uid"), binding["target"]["name"]
        pod = self._server.get(PODS, f"default/{binding['metadata']['name']}")
        if not uid:
            self.violated(f"{request} does not say which pod it means")
        elif uid not in sender.placed:
            self.violated(f"{sender.name} sends {request} for a pod that it has taken back")
        if self._bound_by.get(uid) is sender and pod is not None:
            before = pod["spec"].get("nodeName")
            if pod["metadata"]["uid"] == uid and before != node:
                self.violated(
                    f"{sender.name} binds {pod['metadata']['name']} to {node}, having bound it to {before}"
                )

    def waits(self, request: Request, seconds: float) -> None:
        """See Watcher. Before it can know what the extender takes, a process may call it too often."""
        since = self._simulation.now - self._called[request.sender]
        if seconds > TIMEOUT and since > LEARNING:
            self.violated(f"{request} waits for {seconds:.1f} s: too many are called at a time")

    def received(self, request: Request, answer: Answer) -> None:
        """See Watcher."""
        if request.kind == "extender bind" and b"has been locked" in answer.body:
            uid, node = _bound_by(request)
            state = self._state(request, node)
            leads = request.sender.trusted_until - request.sender.clock.look() > _NEXT_TRY
            if leads and None not in state and self._is_as_decided(request.sender, uid, node):
                self._locked[request.sender, uid] = (node, self._simulation.now, state)

    def _is_as_decided(self, replica: Replica, uid: str, node: str) -> bool:
        """Whether the process knows the node as when it has chosen it.

        If not, and if pods of others have come there since, it decides again whatever an extender says.
        """
        decision, now = replica.decisions.get(uid), replica.scheduler.state.table
        row = now.row_of.get(node)
        known = None if row is None else now.nodes[row]
        return decision is not None and any(
            known is not None
            and node in view.nodes
            and view.nodes[node]["metadata"]["resourceVersion"] == known.resource_version
            and all(
                uid in view.pods and view.pods[uid]["spec"].get("nodeName") == node
                for uid in self._others(replica, node)
            )
            for view in decision.views
        )

    def _others(self, replica: Replica, node: str) -> set[str]:
        """The pods (uids) on a node, as the process knows it, that it has not bound itself."""
        there = (
            p["metadata"]["uid"]
            for p in self._server.all(PODS)
            if p["spec"].get("nodeName") == node
        )
        cache = replica.scheduler.state.cache
        return {
            uid
            for uid in there
            if self._bound_by.get(uid) is not replica and cache.get(uid) is not None
        }

    def _state(self, request: Request, node: str) -> tuple[object, ...]:
        """The node, the same and the pods of others there as the process knows them, and the number of faults."""
        sender, there = request.sender, self._server.get(NODES, node)
        state = sender.scheduler.state
        row = state.table.row_of.get(node)
        known = None if row is None else state.table.nodes[row]
        came = self._others(sender, node)
        faults = sum(sender.network.faults.counts.values())
        return there and there["metadata"]["uid"], known, came, faults

    def _calls(self, request: Request) -> None:
        """A process calls an extender."""
        sender, now = request.sender, self._simulation.now
        self._called.setdefault(sender, now)
        if not self._locked:
            return
        binds = request.kind == "extender bind"
        uid, node = _bound_by(request) if binds else (_asked_about(request), "")
        locked, at, before = self._locked.pop((sender, uid), ("", 0.0, None))
        if not locked or node == locked or now - at > LONGEST_LOCK:
            return
        if self._state(request, locked) == before:
            self.violated(f"{sender.name} decides again about {uid}: {locked} was only locked")

    def begins_to_bind(self, replica: Replica, uid: str) -> None:
        """See Watcher. As many pods of a gang as it needs have a node then, as far as the process knows.

        The mates that were decided together with the pod may be started later, whatever becomes of the first bindings.
        """
        if uid in replica.complete:
            return
        views = [view.pods for view in replica.told.views()]
        pod = next((pods[uid] for pods in views if uid in pods), None)
        name = pod and pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        group = self._server.get(POD_GROUPS, f"default/{name}") if name else None
        if pod is None or group is None:
            return
        mates = {
            mate
            for pods in views
            for mate, each in _live_members(pods.values(), name)
            if each["spec"].get("nodeName")
            or (mate in replica.placed and "deletionTimestamp" not in each["metadata"])
        }
        replica.complete |= mates & replica.placed
        if len(mates) < _minimum(group):
            self.violated(f"{replica.name} binds {pod['metadata']['name']} of half a gang")

    def _evicts(self, request: Request) -> None:
        """Only the victims of evictions that were started are deleted."""
        uid = apiserver.decode(request.body).get("preconditions", {}).get("uid")
        if not uid:
            self.violated(f"{request} does not say which pod it means")
        elif uid not in self._victims[request.sender]:
            self.violated(f"{request} was not started as an eviction")

    def preempts(self, replica: Replica, eviction: Eviction) -> None:
        """See Watcher. The victims are pods of lower priority on one node, the preemptor waits, and the extenders
        agree."""
        uid, node = eviction.preemptor.uid, eviction.node_name
        views = replica.told.views()
        for victim in eviction.victims:
            self._victims[replica].add(victim.uid)
            if (
                victim.priority >= eviction.preemptor.priority
                or not any(_waits(view, uid) for view in views)
                or not any(_is_on(view, replica, victim.uid, node) for view in views)
            ):
                self.violated(
                    f"{replica.name} evicts {victim.name} for {eviction.preemptor.name} from {node}"
                )
        if not all(extender.agrees(uid, node) for extender in self.extenders):
            self.violated(
                f"{replica.name} evicts pods from {node} for {eviction.preemptor.name}: extenders do not agree"
            )

    def pops(self, replica: Replica, queued: QueuedPod) -> None:
        """See Watcher. Neither a waiting pod nor a group is overtaken by later ones of lower priority.

        A pod passes active pods of its own priority only, and only if these need something else besides their turn.
        Where one is decided after the other, no pod passes a group that is being decided, or waits to be.
        """
        state = replica.scheduler.state if replica.scheduler is not None else None
        if state is None:
            return
        for other in state.queue._active:
            if other.pod.priority > queued.pod.priority or (
                other.lane == queued.lane and _turn(other) < _turn(queued)
            ):
                self.violated(f"{replica.name}: {queued.pod.name} overtakes {other.pod.name}")
        if not any(IN_ORDER.replace(" ", "-") in name for name in queued.lane):
            return
        key_of_group = state.cluster.pod_groups.key_of
        group = key_of_group(queued.pod)
        for other in state.queue._in_flight:
            theirs = key_of_group(other.pod)
            if theirs is None or theirs == group or state.cache.get(other.pod.uid) is not None:
                continue
            if _turn(other) < _turn(queued):
                self.violated(f"{replica.name}: {queued.pod.name} overtakes {other.pod.name}")

    def complains(self, replica: Replica, text: str) -> None:
        """See Watcher."""
        self.violated(f"{replica.name}: {text}")

    # ------------------------------------------------------------ what the server stores

    def wrote(self, write: Write) -> None:
        """The server has stored something."""
        request = write.request
        if write.resource == VOLUMES and request is not None:
            self._volume_patched(write)
        if write.resource == DEVICE_CLAIMS and request is not None:
            self._claim_patched(request, write.key, write.old or {}, write.new or {})
        if write.resource != PODS or request is None:
            return
        if request.kind == "bind":
            assert write.new is not None
            self._tell("server", f"{write.key} is bound to {write.new['spec']['nodeName']}")
            self._bound(request, write.new)
        elif request.kind == "patch status":
            assert write.old is not None
            assert write.new is not None
            self._status_patched(request, write.old, write.new)
        else:
            self._tell("server", f"{write.key} is deleted")

    def _volume_patched(self, write: Write) -> None:
        """No volume is given to a second claim."""
        before = (write.old or {}).get("spec", {}).get("claimRef", {}).get("uid")
        after = (write.new or {}).get("spec", {}).get("claimRef", {}).get("uid")
        self._tell("server", f"volume {write.key} is for {after}")
        if before and after != before:
            self.violated(f"volume {write.key} was for {before}, and is given to {after}")

    def _claim_patched(self, request: Request, key: str, old: Manifest, new: Manifest) -> None:
        """No device is given to a second claim, or taken from pods that use it."""
        before, after = devices.allocated(old), devices.allocated(new)
        self._tell("server", f"claim {key} has {sorted(after)} for {devices.consumers(new)}")
        running = {
            pod["metadata"]["uid"]
            for pod in rules.on_nodes(self._server.all(PODS))
            if "deletionTimestamp" not in pod["metadata"]
        }
        if before and before != after and running.intersection(devices.consumers(old)):
            self.violated(f"claim {key} had {sorted(before)}, has {sorted(after)}, and is in use")
        lost = running.intersection(devices.consumers(old)).difference(devices.consumers(new))
        if lost:
            self.violated(f"claim {key} is no longer reserved for {sorted(lost)}, which run")
        if not after or before:
            return
        sender = request.sender
        if not self._is_reckoned_with(request):
            return
        self._allocated_by[new["metadata"]["uid"]] = sender
        added = set(devices.consumers(new)).difference(devices.consumers(old))
        decisions = [sender.decisions[uid] for uid in added if uid in sender.decisions]
        if not decisions:
            self.violated(f"claim {key} has {sorted(after)} for no pod that was decided about")
            return
        for other in self._server.all(DEVICE_CLAIMS):
            uid = other["metadata"]["uid"]
            if uid == new["metadata"]["uid"] or not devices.allocated(other) & after:
                continue
            views = [view for decision in decisions for view in decision.views]
            if self._allocated_by.get(uid) is sender or all(
                devices.allocated(view.claims.get(uid)) & after for view in views
            ):
                self.violated(
                    f"{sender.name} gives devices of claim {key_of(other)} to {key}: {sorted(after)}"
                )

    def _is_reckoned_with(self, request: Request) -> bool:
        """Whether the sender has to expect that a request takes effect now."""
        sender, since = request.sender, self._simulation.now - request.settled_at
        return not request.settled or (sender.alive and sender.leads and since <= request.patience)

    def _status_patched(self, request: Request, old: Manifest, new: Manifest) -> None:
        meta = new["metadata"]
        self._tell("server", f"status of {meta['name']} is patched: {request.body.decode()}")
        if request.intended_uid not in {meta["uid"], ""}:
            self.violated(
                f"a status patch for {request.intended_uid} was written to {meta['name']} ({meta['uid']})"
            )
        says_false = b'"PodScheduled"' in request.body
        ours = self._bound_by.get(meta["uid"]) is request.sender
        runs = is_live(old) and old["spec"].get("nodeName")
        if says_false and ours and runs and not request.settled:
            self.violated(f"{meta['name']} is said to be unschedulable after it was bound")

    def _bound(self, request: Request, pod: Manifest) -> None:
        sender, meta, node = request.sender, pod["metadata"], pod["spec"]["nodeName"]
        if not self._is_reckoned_with(request):
            return
        self._bound_by[meta["uid"]] = sender
        decision = sender.decisions.get(meta["uid"])
        if decision is None or decision.node != node:
            self.violated(f"{meta['name']} was bound to {node}, which was not decided")
            return
        for extender in self.extenders:
            if not extender.keeps(meta["uid"], node):
                self.violated(
                    f"{meta['name']} was bound to {node}, which {extender.name} does not keep for it"
                )
        self._check_placement(decision, sender)

    def _check_placement(self, decision: Decision, sender: Replica) -> None:
        """The pod that was bound, and those that were decided about later: they had to reckon with it."""
        now = View()
        now.pods = {p["metadata"]["uid"]: p for p in rules.on_nodes(self._server.all(PODS))}
        now.nodes = {n["metadata"]["name"]: n for n in self._server.all(NODES)}
        for uid, pod in now.pods.items():
            its = sender.decisions.get(uid)
            if its is None or its.number < decision.number or self._bound_by.get(uid) is not sender:
                continue
            found = [dict(self._broken(pod, its, each, now, sender)) for each in (*its.views, now)]
            for rule, text in found[0].items():
                if all(rule in others for others in found):
                    name = pod["metadata"]["name"]
                    self.violated(f"{sender.name} bound {name} to {its.node}: {rule}: {text}")

    def _broken(
        self, pod: Manifest, decision: Decision, view: View, now: View, sender: Replica
    ) -> Iterator[tuple[str, str]]:
        """The rules that a pod on a node breaks in one view.

        Only those other pods count that the process had been told of, or had decided about before, and that are still
        there.
        """
        name = decision.node
        node, pod = view.nodes.get(name), view.pods.get(pod["metadata"]["uid"], pod)
        if node is None:
            yield "node", "there is no such node"
            return
        yield from ((reason, name) for reason in rules.refusals(node, pod))
        others = [
            {**view.pods.get(uid, other), "spec": other["spec"]}
            for uid, other in now.pods.items()
            if uid != pod["metadata"]["uid"]
            and (self._was_first(uid, decision, sender) or self._is_known(other, view))
        ]
        here = [other for other in others if other["spec"]["nodeName"] == name]
        yield from rules.shortages(pod, node, here)
        for other in here:
            if rules.host_ports(pod) & rules.host_ports(other):
                yield "host port", other["metadata"]["name"]
        for other in others:
            if other["spec"]["nodeName"] not in view.nodes:
                continue
            for key in storage.shared_claims(self._server, pod, other):
                yield "ReadWriteOncePod", f"{key}, used by {other['metadata']['name']}"
        for key in storage.out_of_reach(self._server, pod, node):
            yield "volume", f"{key} has none that the node reaches"
        for key in devices.not_reserved(self._server, pod, name):
            yield "claim", f"{key} is not reserved, or its devices are elsewhere"
        volumes = storage.driver_volumes(self._server, [pod])
        taken = storage.driver_volumes(self._server, here)
        if not volumes <= taken and len(volumes | taken) > storage.places(self._server, name):
            yield "volume limit", f"{len(volumes | taken)} volumes"
        for other in others:
            there = view.nodes.get(other["spec"]["nodeName"])
            if there is not None and rules.at_odds(pod, other, node, there):
                yield f"anti-affinity with {other['metadata']['name']}", name

    def _was_first(self, uid: str, decision: Decision, sender: Replica) -> bool:
        """Whether the process has bound a pod itself, having decided about it before."""
        before = sender.decisions.get(uid)
        return (
            before is not None
            and before.number < decision.number
            and self._bound_by.get(uid) is sender
        )

    def _is_known(self, pod: Manifest, view: View) -> bool:
        known = view.pods.get(pod["metadata"]["uid"])
        return known is not None and known["spec"].get("nodeName") == pod["spec"]["nodeName"]

    # ------------------------------------------------------------ gangs that wait

    def look_at_gangs(self, *, led: bool) -> None:
        """Each second once nothing fails: a gang that lacks pods with a node waits no longer than LONGEST_WAIT for room
        that there is.

        ``led``: whether a process leads.
        """
        for group in self._server.all(POD_GROUPS):
            name = group["metadata"]["name"]
            self._waited[name] = (
                self._waited[name] + 1 if led and self._lacks_only_a_try(group) else 0
            )
            if self._waited[name] == LONGEST_WAIT:
                self.violated(f"{name} waits for {LONGEST_WAIT} s, though there is room for it")

    def _lacks_only_a_try(self, group: Manifest) -> bool:
        """Whether a gang has too few pods with a node, and there is room for as many as it needs."""
        pods, nodes = self._server.all(PODS), self._server.all(NODES)
        members = [pod for _, pod in _live_members(pods, group["metadata"]["name"])]
        waiting = [pod for pod in members if not pod["spec"].get("nodeName")]
        missing = _minimum(group) - (len(members) - len(waiting))
        if not 0 < missing <= len(waiting):
            return False
        there = [*pods, *_nominated(pods, waiting[0])]
        for pod in waiting:
            for node in nodes:
                if rules.fits(pod, node, there, nodes):
                    there.append(_on(pod, node["metadata"]["name"]))
                    missing -= 1
                    break
        return missing <= 0

    # ------------------------------------------------------------ the scheduler's books

    def look_at_books(self, replica: Replica) -> None:
        """Each pod is in at most one place, and no pod that waits for its group to be complete is nominated."""
        if replica.scheduler is None:
            return
        state = replica.scheduler.state
        for pod in state.pods.values():
            place = state.queue.where(pod.uid)
            # A pod in flight may be assumed, or bound by another: its attempt will find out.
            if place not in {None, OUTSIDE, IN_FLIGHT} and state.cache.get(pod.uid) is not None:
                self.violated(f"{replica.name}: {pod.name} is in the cache and {place.name}")
            queued = state.queue.get(pod.uid)
            node = state.nominator.node_of(pod.uid)
            if node and queued is not None and queued.gating_plugin == GangScheduling.NAME:
                self.violated(f"{replica.name}: {pod.name} is gated and nominated to {node}")

    def unsettled(self, replica: Replica, *, leads: bool) -> Iterator[str]:
        """What is not yet as it must be in the end, for people."""
        scheduler = replica.scheduler
        if scheduler is None:
            yield f"{replica.name} has not begun"
            return
        for informer in scheduler.informers:
            yield from self._unlike(informer)
        if leads:
            yield from self._unbound()
            yield from self._books(scheduler)

    def leaked_tasks(self, replica: Replica) -> Iterator[str]:
        """Tasks that should have ended when all is settled."""
        for name in sorted(task.get_name() for task in asyncio.all_tasks(replica.loop)):
            if not name.startswith(_ETERNAL):
                yield f"task {name!r} has not ended"

    def _unlike(self, informer: Any) -> Iterator[str]:
        """Where an informer's objects differ from the server's."""
        resource = apiserver.parse(informer.kind.path).resource
        stored = self._server.all(resource)
        theirs = {
            key_of(m): m["metadata"]["resourceVersion"]
            for m in stored
            if resource != PODS or is_live(m)
        }
        ours = {key: each.resource_version for key, each in informer.objects.items()}
        for key in sorted(theirs.keys() | ours.keys()):
            if theirs.get(key) != ours.get(key):
                yield f"{informer.kind.name} {key}: version {ours.get(key)} instead of {theirs.get(key)}"

    def _unbound(self) -> Iterator[str]:
        pods, nodes = self._server.all(PODS), self._server.all(NODES)
        for pod in pods:
            there = [*pods, *_nominated(pods, pod)]
            if (
                pod["spec"].get("nodeName")
                or "schedulingGroup" in pod["spec"]
                or pod["spec"]["schedulerName"] != PROFILE
                or not is_live(pod)
            ):
                continue
            for node in nodes:
                allowed = all(extender.allows(pod, node) for extender in self.extenders)
                if (
                    allowed
                    and rules.fits(pod, node, there, nodes)
                    and not any(storage.obstacles(self._server, pod, node, rules.on_nodes(there)))
                    and not any(devices.obstacles(self._server, pod, node["metadata"]["name"]))
                ):
                    yield f"{pod['metadata']['name']} is not bound, though it fits {node['metadata']['name']}"
                    break

    def _books(self, scheduler: Any) -> Iterator[str]:
        """What the scheduler remembers beyond what there is."""
        state = scheduler.state
        live = [pod for pod in self._server.all(PODS) if is_live(pod)]
        bound = {p["metadata"]["uid"] for p in live if p["spec"].get("nodeName")}
        waiting = {
            p["metadata"]["uid"]
            for p in live
            if not p["spec"].get("nodeName") and p["spec"]["schedulerName"] == PROFILE
        }
        queue, cache = state.queue.statistics(), state.cache.statistics()
        cached = {pod.uid for pod in state.cache}
        if cached != bound:
            yield f"the cache has {sorted(cached - bound)} and lacks {sorted(bound - cached)}"
        if cache.assumed_pods:
            yield f"{cache.assumed_pods} pods are assumed"
        if queue.in_flight:
            yield f"{queue.in_flight} pods are in flight"
        in_queue = {p["metadata"]["uid"] for p in live if state.queue.get(p["metadata"]["uid"])}
        if in_queue != waiting:
            yield f"the queue has {sorted(in_queue - waiting)} and lacks {sorted(waiting - in_queue)}"
        counts = {
            "pods in the queue": (
                queue.active
                + queue.backoff
                + queue.error_backoff
                + queue.unschedulable
                + queue.gated,
                len(waiting),
            ),
            "pods": (len(state.pods), len(live)),
            "bindings": (scheduler.binder.cycles.count, 0),
            "preemptions": (scheduler.evictor.preemptions.count, 0),
            "status patches": (len(scheduler.patcher), 0),
            "pods that extenders refused": (max(0, len(scheduler.retries) - len(waiting)), 0),
        }
        yield from (
            f"{n} {what} instead of {wanted}" for what, (n, wanted) in counts.items() if n != wanted
        )
        yield from self._groups(state.cluster.pod_groups)
        yield from self._table(state.table)

    def _groups(self, groups: Any) -> Iterator[str]:
        """Where the members of groups are wrong."""
        there: defaultdict[str, list[bool]] = defaultdict(list)
        for pod in self._server.all(PODS):
            if is_live(pod) and "schedulingGroup" in pod["spec"]:
                name = pod["spec"]["schedulingGroup"]["podGroupName"]
                there[name].append(bool(pod["spec"].get("nodeName")))
        found = {key.name: groups.members(key) for key in groups.groups()}
        for name in sorted(there.keys() | found.keys()):
            ours = (len(found[name].scheduled), len(found[name])) if name in found else (0, 0)
            theirs = (sum(there[name]), len(there[name]))
            if ours != theirs:
                yield f"{ours} pods of group {name} are scheduled instead of {theirs}"

    def _table(self, table: Any) -> Iterator[str]:
        """Where the node table's sums are wrong."""
        pods = rules.on_nodes(self._server.all(PODS))
        for node in self._server.all(NODES):
            name = node["metadata"]["name"]
            here = [pod for pod in pods if pod["spec"]["nodeName"] == name]
            row = table.row_of.get(name)
            if row is None:
                yield f"node {name} has no row"
                continue
            taken = rules.usage(*here)
            found = {"pods": int(table.pod_count[row]) * 1000}
            for resource in ("cpu", "memory", "example.com/gpu"):
                unit = 1 if resource == "cpu" else 1000
                found[resource] = int(table.requested.column(resource)[row]) * unit
            if Counter(found) != Counter(taken):
                yield f"node {name}: {found} instead of {taken}"


def _nominated(pods: list[Manifest], pod: Manifest) -> Iterator[Manifest]:
    """The pods whose place on a node is kept from another, as if they were there already."""
    for other in pods:
        node = other["status"].get("nominatedNodeName")
        first = other["spec"].get("priority", 0) >= pod["spec"].get("priority", 0)
        if node and first and other is not pod and not other["spec"].get("nodeName"):
            yield _on(other, node)


def _on(pod: Manifest, node: str) -> Manifest:
    """A pod as it would be on a node."""
    return {**pod, "spec": {**pod["spec"], "nodeName": node}}


def _live_members(pods: Iterable[Manifest], group: str) -> Iterator[tuple[str, Manifest]]:
    """The pods of a group that have not ended, with their uids."""
    for pod in pods:
        named = pod["spec"].get("schedulingGroup", {}).get("podGroupName")
        if named == group and is_live(pod):
            yield pod["metadata"]["uid"], pod


def _turn(queued: QueuedPod) -> tuple[int, float]:
    """The lowest is first: the highest priority, then the longest wait."""
    return -queued.pod.priority, queued.timestamp


def _minimum(group: Manifest) -> int:
    """How many pods of a group are bound together at least."""
    return group["spec"]["schedulingPolicy"].get("gang", {}).get("minCount", 1)


def _bound_by(request: Request) -> tuple[str, str]:
    """The uid of the pod that an extender is asked to bind, and the node."""
    asked = apiserver.decode(request.body)
    return asked["PodUID"], asked["Node"]


def _asked_about(request: Request) -> str:
    """The uid of the pod that a call is about."""
    return str(apiserver.decode(request.body)["Pod"]["metadata"]["uid"])


def _waits(view: View, uid: str) -> bool:
    """Whether a pod has no node, as far as the process knows."""
    pod = view.pods.get(uid)
    return pod is not None and "nodeName" not in pod["spec"]


def _is_on(view: View, replica: Replica, uid: str, node: str) -> bool:
    """Whether a pod is on a node, as far as the process knows. One that the view lacks may have a binding whose outcome
    is unknown."""
    pod, decision = view.pods.get(uid, {"spec": {}}), replica.decisions.get(uid)
    return (pod["spec"].get("nodeName") or (decision.node if decision else "")) == node
