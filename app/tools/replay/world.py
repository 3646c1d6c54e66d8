"""A scheduler in this process that is told what a recording says, in its order, and decides once more.

State, queue and cycle are those of the scheduler; what its shell did (bindings, their failures, retries) comes from the
recording. What was decided with extenders, or about a group of pods, is taken as recorded. The clock shows the recorded
times.
"""

import functools
import math
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

import msgspec
import numpy as np

from app.cycle.attempt import Attempt
from app.cycle.pod_cycle import Outcome, Placed, Preempt, Rejected, finish, schedule, take
from app.framework.handle import Effects, Eviction, FixedWaitingPods
from app.framework.interface import CycleState
from app.model.features import Features
from app.model.objects import Named, Node, ObjectMeta, PodSpec
from app.model.pod import LabelSet, Pod, PodTemplate
from app.model.pod_groups import POLICIES, LabelledPodGroup, PodGroup
from app.model.pod_groups_v1alpha2 import WHOLE_PREEMPTION
from app.plugins.registry import capabilities
from app.scheduler import kinds
from app.scheduler.profiles import build_state, with_gang_scheduling
from app.scheduler.trace import Header, Op, PodRecord
from app.settings.load import load
from app.state.cache import CacheError
from app.state.queue.backoff_queue import RetryTimes
from app.state.queue.queued_pod import QueuedPod
from app.state.queue.scheduling_queue import SchedulingQueue
from app.state.scheduler_state import Change
from app.wire.envelope import DecodeError
from app.wire.extender_v1 import Victims
from app.wire.kube import decoder_for

#: Records of a checkpoint that are needed when it is complete.
_HELD: Final = frozenset({Op.OBJECT, Op.POD, Op.ASSUMED, Op.NOMINATED})
_PACK: Final = msgspec.msgpack.Encoder(order="sorted").encode
_SPEC: Final = msgspec.json.Decoder(PodSpec)
_HOLE: Final = "\0hole {}"
_NODE: Final = msgspec.json.Decoder(Node)


class RecordError(Exception):
    """A record that cannot follow those before it, or has other fields than its kind has."""


class Difference(NamedTuple):
    """What was recorded and what the replay decides instead."""

    #: Seconds since the epoch.
    time: float
    pod: str
    recorded: str
    replayed: str


class TraceClock:
    """The time of the last record (app.model.clock)."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        """See Clock."""
        return self.now

    def wall(self) -> float:
        """See Clock."""
        return self.now

    def steady(self) -> float:
        """See Clock."""
        return self.now


class _Taken(msgspec.Struct):
    """A pod that was popped and is not bound, nor back in the queue."""

    queued: QueuedPod
    attempt: Attempt | None
    outcome: Outcome | None = None
    #: What PostFilter returned: the nomination.
    nominated: str | None = ""


class World:
    """The scheduler of one recording."""

    def __init__(
        self,
        header: Header,
        classes: Mapping[str, type],
        *,
        differs: Callable[[Difference], None],
        decided: Callable[[str, str], None],
    ) -> None:
        """``decided`` is called with each decision: the pod's uid, and the node or why there is none.

        Raises ConfigurationError, PluginError.
        """
        self._differs: Final = differs
        self._decided: Final = decided
        loaded = load(header.configuration, name="the recorded configuration")
        features = Features.of(header.rules, header.gates)
        plain = loaded.to_plain(capabilities(classes), features)
        config = loaded.settings.configuration
        #: Whether the queue's order follows from its state alone.
        self.ordered: Final = header.first and not loaded.settings.extenders
        self._redacted: Final = header.redacted
        self.clock: Final = TraceClock()
        self._rng: Final = np.random.default_rng(0)
        self.features: Final = features
        self.profiles: Final = [with_gang_scheduling(profile) for profile in plain]
        self.state, self._frameworks = build_state(
            self.profiles,
            classes,
            functools.partial(
                SchedulingQueue,
                times=RetryTimes(
                    config.pod_initial_backoff_seconds,
                    config.pod_max_backoff_seconds,
                    header.max_unschedulable_seconds,
                ),
            ),
            rng=self._rng,
            waiting=FixedWaitingPods(),
            clock=self.clock,
            features=features,
            extended=bool(loaded.settings.extenders),
        )
        groups = self.state.cluster.pod_groups
        if kinds.GROUP_GATES[0] in features:
            groups.preempt_whole(gate=WHOLE_PREEMPTION in features)
        groups.topology = "TopologyAwareWorkloadScheduling" in features
        groups.policies = POLICIES in features
        for kind in (PodGroup, LabelledPodGroup):
            if kind.__name__ in header.groups:
                path = header.groups[kind.__name__]
                groups.watch(kind, functools.partial(str, path))
        self._effects: Final = _Effects(self)
        self._kinds: Final = _kinds(self.state.cluster.kinds())
        self._objects: Final[dict[tuple[str, str], Any]] = {}
        self._pods: Final[dict[str, Pod]] = {}
        self._taken: Final[dict[str, _Taken]] = {}
        self._evictions: Final[dict[str, Eviction]] = {}
        #: By number, as bytes: what no pod has any longer takes little memory, and may be named once more.
        self._specs: dict[int, bytes] = {}
        self._labels: dict[int, bytes] = {}
        self._templates: Final[WeakValueDictionary[bytes, PodTemplate]] = WeakValueDictionary()
        self._label_sets: Final[WeakValueDictionary[bytes, LabelSet]] = WeakValueDictionary()
        #: The parts of a list so far.
        self._list: list[Any] = []
        self._rows: tuple[list[str], list[int]] = ([], [])
        self._held: Final[list[tuple[Op, tuple[Any, ...]]]] = []
        #: Decisions that were made once more, and those that were taken as recorded.
        self.repeated = self.adopted = 0

    # ------------------------------------------------------------ records

    def restart_numbers(self) -> None:
        """Another file begins, which numbers templates and labels anew."""
        self._specs, self._labels = {}, {}

    def take(self, record: Sequence[Any]) -> None:
        """Lets a record happen. Raises RecordError."""
        try:
            op = Op(record[0])
            if op in _HELD:
                self._held.append((op, tuple(record[1:])))
            else:
                self._HANDLERS[op](self, *record[1:])
        except RecordError:
            raise
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
            raise RecordError(f"{type(error).__name__}: {error}") from error
        except (msgspec.DecodeError, DecodeError, CacheError) as error:
            raise RecordError(str(error)) from error

    def _set_template(self, number: int, text: bytes) -> None:
        self._specs[number] = text

    def _set_labels(self, number: int, labels: dict[str, str]) -> None:
        self._labels[number] = _PACK(labels)

    def _template(self, number: int) -> PodTemplate:
        text = self._specs[number]
        known = self._templates.get(text)
        if known is None:
            known = self._templates[text] = PodTemplate(_SPEC.decode(text), text)
        return known

    def _label_set(self, number: int) -> LabelSet:
        packed = self._labels[number]
        known = self._label_sets.get(packed)
        if known is None:
            known = LabelSet(msgspec.msgpack.decode(packed, type=dict[str, str]))
            self._label_sets[packed] = known
        return known

    def _pod(self, record: list[Any]) -> Pod:
        told = msgspec.convert(record, PodRecord)
        fields = {name: getattr(told, name) for name in PodRecord.__struct_fields__}
        fields["template"] = self._template(told.template)
        fields["labels"] = self._label_set(told.labels)
        return Pod(**fields)

    def _object(self, kind: str, text: bytes) -> Named:
        model = self._kinds[kind]
        if model is Node:
            return _NODE.decode(text)
        made: Named = decoder_for(model).decode(msgspec.Raw(text))
        return made

    # ------------------------------------------------------------ a checkpoint

    def _checkpoint(self, now: float, rng: bytes) -> None:
        """All of a checkpoint is known: the state is made from it."""
        self._at(now)
        names, free = self._rows
        held, nodes = list(self._held), {}
        self._held.clear()
        pods: dict[str, Pod] = {}
        for op, fields in held:
            if op is Op.OBJECT:
                made = self._object(*fields)
                self._objects[fields[0], made.key] = made
                if isinstance(made, Node):
                    nodes[made.name] = made
                else:
                    self.state.apply(Change(type(made), None, made), now)
            elif op is Op.POD:
                pod = self._pod(*fields)
                pods[pod.key] = self._pods[pod.uid] = pod
                self._objects["Pod", pod.key] = pod
        gone = [name for name in names if name and name not in nodes]
        for row, name in enumerate(names):
            own = name or _HOLE.format(row)
            node = nodes.get(own) or Node(metadata=ObjectMeta(name=own))
            self.state.apply(Change(Node, None, node), now)
        self.state.apply_new(Pod, pods, now)
        for name in (*gone, *map(_HOLE.format, free)):
            self.state.apply(Change(Node, Node(metadata=ObjectMeta(name=name)), None), now)
        for op, fields in held:
            if op is Op.ASSUMED and (known := self._pods.get(fields[0])) is not None:
                self.state.pop_pods([known.uid], now)
                self.state.assume(known, fields[1])
                self.state.done(known.uid)
            elif op is Op.NOMINATED and (known := self._pods.get(fields[0])) is not None:
                self.state.nominate(known, fields[1])
        self._set_rng(rng)

    def _at(self, now: float) -> None:
        if type(now) is not float or not math.isfinite(now):
            raise RecordError(f"{now!r} is no time")
        self.clock.now = now

    def _set_rng(self, text: bytes) -> None:
        state = msgspec.json.decode(text)
        state["state"] = {name: int(value) for name, value in state["state"].items()}
        self._rng.bit_generator.state = state

    def _set_rows(self, names: list[str], free: list[int]) -> None:
        if not all(type(n) is str for n in names) or not all(type(row) is int for row in free):
            raise RecordError("rows without names")
        self._rows = names, free

    # ------------------------------------------------------------ what came in

    def _changed(self, now: float, kind: str, text: bytes) -> None:
        new = self._object(kind, text)
        old = self._objects.get((kind, new.key))
        self._objects[kind, new.key] = new
        self._at(now)
        self.state.apply(Change(type(new), old, new), now)

    def _pod_changed(self, now: float, record: list[Any]) -> None:
        self._pod_shown(now, self._pod(record))

    def _pod_bound(self, now: float, uid: str, node: str, version: str) -> None:
        if not type(node) is type(version) is str:
            raise RecordError("a node or a version that is no text")
        new = msgspec.structs.replace(self._pods[uid], node_name=node, resource_version=version)
        self._pod_shown(now, new)

    def _pod_shown(self, now: float, new: Pod) -> None:
        old = self._objects.get(("Pod", new.key))
        self._objects["Pod", new.key] = self._pods[new.uid] = new
        self._at(now)
        self.state.apply(Change(Pod, old, new), now)

    def _deleted(self, now: float, kind: str, key: str) -> None:
        old = self._objects.pop((kind, key), None)
        if old is None:
            return
        self._at(now)
        if kind == "Pod":
            self._pods.pop(old.uid, None)
            self._evictions.pop(old.uid, None)
        self.state.apply(Change(self._kinds[kind], old, None), now)

    def _listed(self, now: float, kind: str, texts: list[bytes], more: bool = False) -> None:
        self._at(now)
        self._list += texts
        if more:
            return
        texts, self._list = self._list, []
        objects = {made.key: made for made in (self._object(kind, text) for text in texts)}
        self._objects.update(((kind, key), made) for key, made in objects.items())
        self.state.apply_new(self._kinds[kind], objects, now)

    def _listed_pods(self, now: float, records: list[Any], more: bool = False) -> None:
        self._at(now)
        self._list += records
        if more:
            return
        records, self._list = self._list, []
        pods = {pod.key: pod for pod in map(self._pod, records)}
        self._objects.update((("Pod", key), pod) for key, pod in pods.items())
        self._pods.update((pod.uid, pod) for pod in pods.values())
        self.state.apply_new(Pod, pods, now)

    # ------------------------------------------------------------ the queue

    def _flush(self, now: float) -> None:
        self._at(now)
        self.state.flush(now)

    def _activate(self, now: float, uids: list[str]) -> None:
        self._at(now)
        self.state.activate([self._pods[uid] for uid in uids if uid in self._pods], now)

    def _refresh_lanes(self, namespace: str) -> None:
        self.state.refresh_lanes(namespace)

    def _pop(self, now: float, uid: str, extended: bool) -> None:
        self._at(now)
        queued = None
        if self.ordered:
            first = self.state.peek()
            if first is not None and first.pod.uid == uid:
                queued = self.state.pop(now)
            else:
                other = "no pod" if first is None else f"pod {first.pod.key}"
                self._differ(uid, "is tried next", f"{other} is tried next")
        if queued is None:
            queued = next(iter(self.state.pop_pods([uid], now)), None)
        if queued is None:
            self._differ(uid, "is tried", "is not in the queue")
            return
        attempt = None
        if not extended:
            attempt = take(self.state, self._frameworks, queued, self._rng)
        self._taken[uid] = _Taken(queued, attempt)

    def _pop_group(self, now: float, uids: list[str]) -> None:
        self._at(now)
        for queued in self.state.pop_pods(uids, now):
            self._taken[queued.pod.uid] = _Taken(queued, None)

    # ------------------------------------------------------------ decisions

    def _decide(self, taken: _Taken) -> Outcome | None:
        """The outcome of an attempt that was not decided yet."""
        attempt, taken.attempt = taken.attempt, None
        if attempt is None:
            return None
        steps = schedule(
            self.state, taken.queued, attempt, started=self.clock.now, chosen=lambda _choice: None
        )
        taken.outcome = outcome = finish(steps)
        self.repeated += 1
        self._decided(taken.queued.pod.uid, told(outcome))
        if isinstance(outcome, Preempt):
            self._make_room(taken, attempt, outcome)
        return outcome

    def _make_room(self, taken: _Taken, attempt: Attempt, outcome: Preempt) -> None:
        work = attempt.framework.commit.post_filter(
            attempt.state, attempt.pod, outcome.diagnosis, cast("Effects", self._effects)
        )
        result = _result_of(work)
        taken.nominated = "" if result is None else result.nominated_node

    def _assume(self, uid: str, node: str) -> None:
        taken = self._taken.get(uid)
        if taken is not None and (outcome := self._decide(taken)) is not None:
            found = told(outcome)
            if _node_of(outcome) != node:
                self._differ(uid, f"goes to node {node}", found)
            return
        pod = self._pods.get(uid)
        if pod is None or self.state.cache.is_assumed(uid):
            return
        if taken is None:
            self.state.pop_pods([uid], self.clock.now)
        self.adopted += 1
        self._decided(uid, f"goes to node {node}")
        assumed = self.state.assume(pod, node)
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is not None:
            framework.commit.reserve(framework.fresh_state(pod), assumed, node)

    def _unfit(self, uid: str, message: str) -> None:
        taken = self._taken.get(uid)
        if taken is None:
            return
        outcome = self._decide(taken)
        if outcome is None:
            self.adopted += 1
            self._decided(uid, message)
        elif not isinstance(outcome, Preempt) or not self._says(
            outcome.diagnosis.message(), message
        ):
            self._differ(uid, message, told(outcome))

    def _rejected(self, uid: str, message: str) -> None:
        taken = self._taken.get(uid)
        if taken is None:
            return
        outcome = self._decide(taken) or taken.outcome
        if outcome is None:
            self.adopted += 1
            self._decided(uid, message)
        elif not isinstance(outcome, Rejected) or not self._says(outcome.status.message, message):
            self._differ(uid, message, told(outcome))

    def _says(self, message: str, recorded: str) -> bool:
        """Whether a message is the recorded one, if that is known."""
        return message == recorded or (self._redacted and not recorded)

    def _done(self, uid: str) -> None:
        self.state.done(uid)

    def _drop(self, uid: str) -> None:
        taken = self._taken.pop(uid, None)
        if taken is not None:
            self.state.drop(taken.queued.pod)

    def _fail(
        self, now: float, uid: str, nominated: str | None, plugins: list[str], pending: list[str]
    ) -> None:
        self._at(now)
        taken = self._taken.pop(uid, None)
        if taken is None:
            return
        if isinstance(taken.outcome, Preempt):
            own = taken.outcome.diagnosis
            found = sorted(own.unschedulable_plugins), sorted(own.pending_plugins)
            if found != (plugins, pending):
                self._differ(uid, f"rejected by {plugins} {pending}", f"rejected by {found}")
        taken.queued.reject(plugins, pending)
        self.state.fail(taken.queued, now, nominated_node=nominated)

    def _forget(self, uid: str) -> None:
        taken = self._taken.get(uid)
        outcome = None if taken is None else taken.outcome
        own = outcome.assumed if isinstance(outcome, Placed | Rejected) else None
        pod = self.state.cache.get(uid) if own is None else own.pod
        if pod is None:
            return
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is not None:
            state = CycleState() if own is None else own.cycle_state
            framework.commit.unreserve(state, pod, pod.node_name)
        self.state.forget(pod)

    def _freed(self, now: float, record: list[Any], but: list[str]) -> None:
        self._at(now)
        self.state.freed(self._pod(record), now, but=but)

    def _bound(self, uid: str) -> None:
        taken = self._taken.pop(uid, None)
        self._evictions.pop(uid, None)
        self.state.finish_binding(uid)
        if taken is not None and isinstance(taken.outcome, Placed):
            assumed = taken.outcome.assumed
            pod = assumed.pod
            assumed.framework.commit.post_bind(assumed.cycle_state, pod, pod.node_name)

    def _gone(self, now: float, record: list[Any], among: list[str]) -> None:
        self._at(now)
        self.state.unscheduled_pod_gone(self._pod(record), now, among=frozenset(among))

    # ------------------------------------------------------------ evictions

    def evicts(self, eviction: Eviction) -> None:
        """The replay's own PostFilter evicts."""
        self._evictions[eviction.uid] = eviction

    def _evict(self, uid: str, node: str, victims: list[str]) -> None:
        own = self._evictions.get(uid)
        if own is None:
            return
        found = [victim.uid for victim in own.victims]
        if (own.node_name, found) != (node, victims):
            self._differ(uid, f"evicts {victims} on {node}", f"evicts {found} on {own.node_name}")

    def _eviction(self, step: str, uid: str, more: str) -> None:
        own = self._evictions.get(uid)
        if own is None:
            return
        match step:
            case "begin":
                own.progress.begin(uid)
            case "last":
                last = [victim for victim in own.victims if victim.uid == more]
                if last:
                    own.progress.last(uid, last[0])
            case "end":
                own.progress.end(uid, evicted=bool(more))
            case "lapse":
                own.progress.lapse(uid)
            case _:
                raise RecordError(f"{step} is no step of an eviction")

    def _ignore(self, *_fields: Any) -> None:
        """What concerns no decision."""

    def _differ(self, uid: str, recorded: str, replayed: str) -> None:
        pod = self._pods.get(uid)
        name = uid if pod is None else pod.key
        self._differs(Difference(self.clock.now, name, recorded, replayed))

    _HANDLERS: Final[Mapping[Op, Callable[..., None]]] = {
        Op.TEMPLATE: _set_template,
        Op.LABELS: _set_labels,
        Op.ROWS: _set_rows,
        Op.CHECKPOINT: _checkpoint,
        Op.CHANGED: _changed,
        Op.POD_CHANGED: _pod_changed,
        Op.POD_BOUND: _pod_bound,
        Op.DELETED: _deleted,
        Op.LISTED: _listed,
        Op.LISTED_PODS: _listed_pods,
        Op.FLUSH: _flush,
        Op.ACTIVATE: _activate,
        Op.REFRESH_LANES: _refresh_lanes,
        Op.POP: _pop,
        Op.POP_GROUP: _pop_group,
        Op.ASSUME: _assume,
        Op.UNFIT: _unfit,
        Op.REJECTED: _rejected,
        Op.DONE: _done,
        Op.DROP: _drop,
        Op.FAIL: _fail,
        Op.FORGET: _forget,
        Op.FREED: _freed,
        Op.BOUND: _bound,
        Op.GONE: _gone,
        Op.EVICT: _evict,
        Op.EVICTION: _eviction,
        Op.RANDOM: _set_rng,
        Op.NAMES: _ignore,
        Op.CALL: _ignore,
        Op.REQUEST: _ignore,
    }


def told(outcome: Outcome) -> str:
    """The outcome of an attempt, for people."""
    match outcome:
        case Placed(assumed):
            return f"goes to node {assumed.pod.node_name}"
        case Preempt(diagnosis):
            return diagnosis.message()
        case Rejected(status):
            return status.message
    return "needs no node any longer"


def _node_of(outcome: Outcome) -> str:
    match outcome:
        case Placed(assumed):
            return assumed.pod.node_name
        case Rejected(_, assumed) if assumed is not None:
            return assumed.pod.node_name
    return ""


def _kinds(models: Iterable[type[Named]]) -> dict[str, type[Any]]:
    known: list[type[Any]] = [*models, Node, Pod]
    return {model.__name__: model for model in known}


def _result_of(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing here."""
    try:
        while True:
            work.send(None)
    except StopIteration as end:
        return end.value


class _Effects:
    """Effects (app.framework.handle) of PostFilter: an eviction is noted; the recording says what became of it."""

    def __init__(self, world: World) -> None:
        self._world: Final = world
        self.evict: Final = world.evicts
        self.latest: Final = world.state.latest
        self.now: Final = world.clock.wall

    def asks_about_victims(self, _pod: Pod) -> bool:
        return False

    async def agree_on_victims(
        self, _pod: Pod, candidates: Mapping[str, Victims]
    ) -> Mapping[str, Victims]:
        return candidates

    def event(self, pod: Pod, *, reason: str, action: str, note: str) -> None:
        """Nobody is told."""

    async def sleep(self, _seconds: float) -> None:
        """Time passes with the recording."""
