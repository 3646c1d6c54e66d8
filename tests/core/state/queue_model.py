"""The scheduling queue as plainly as it can be written: one list of pods, every rule as the specification words it."""

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable

from app.model.cluster_event import FORCE_ACTIVATE, UNSCHEDULABLE_TIMEOUT, ClusterEvent
from app.model.pod import Pod
from app.state.queue.queued_pod import Place
from app.state.queue.update_events import pod_update_events

ACTIVE, BACKOFF, ERROR = Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF
PARKED, GATED, FLYING = Place.UNSCHEDULABLE, Place.GATED, Place.IN_FLIGHT

SKIP, AFTER_BACKOFF, IMMEDIATELY = range(3)


@dataclasses.dataclass(eq=False)
class ModelPod:
    """What the specification calls the per-pod info."""

    pod: Pod
    timestamp: float
    place: Place | None = None
    attempts: int = 0
    rejections: int = 0
    errors: int = 0
    flushed: bool = False
    unschedulable: set[str] = dataclasses.field(default_factory=set)
    pending: set[str] = dataclasses.field(default_factory=set)
    gate: str = ""

    @property
    def rejectors(self) -> set[str]:
        return self.unschedulable | self.pending

    @property
    def order(self):
        return -self.pod.priority, self.timestamp

    @property
    def expiration(self) -> float:
        """With an initial backoff of 1 s and at most 10 s."""
        count = self.errors or self.rejections
        return math.floor(self.timestamp + min(10, 2 ** (count - 1))) if count else 0

    def backs_off(self, now: float) -> bool:
        return self.expiration >= math.floor(now)


class QueueModel:
    """Arguments are those of the real queue; ``gates`` tells which plugins keep a pod out, in order."""

    def __init__(self, hints, gates: Callable[[Pod], Iterable[tuple[str, bool]]]) -> None:
        self.hints = hints
        self.gates = gates
        self.pods: list[ModelPod] = []
        self.names: dict[str, ModelPod] = {}
        #: Markers of pods in flight and events, in the order in which they came.
        self.flight: list[ModelPod | tuple[ClusterEvent, object, object]] = []

    # ------------------------------------------------------------ what a test looks at

    def find(self, uid: str) -> ModelPod | None:
        return next((p for p in self.pods if p.pod.uid == uid), None)

    def at(self, *places: Place) -> list[ModelPod]:
        return [p for p in self.pods if p.place in places]

    def gauge(self) -> Counter[tuple[str, str]]:
        waiting = [p for p in self.pods if p.place is not FLYING]
        return Counter((r, p.pod.spec.scheduler_name) for p in waiting for r in p.rejectors)

    def events_kept(self) -> int:
        return sum(isinstance(item, tuple) for item in self.flight)

    def next_flush(self, now: float) -> float | None:
        times = [p.expiration + 1 for p in self.at(BACKOFF, ERROR)]
        times += [math.floor((p.timestamp + 300) / 30) * 30 + 30 for p in self.at(PARKED)]
        return max(now, min(times)) if times else None

    # ------------------------------------------------------------ pods come, change and go

    def add(self, pod: Pod, now: float) -> None:
        known = self.find(pod.uid)
        if known and known.place is FLYING:
            self.keep(known.pod, pod)
            return
        namesake = self.names.get(pod.name)
        for gone in (known, namesake):
            if gone and gone.place is not FLYING and gone in self.pods:
                self.leave(gone)
        new = ModelPod(pod, now)
        self.enter(new)
        self.requeue(new, IMMEDIATELY, now)

    def update(self, old: Pod, new: Pod, now: float) -> None:
        if old.uid != new.uid:
            self.delete(old)
        known = self.find(new.uid)
        if known is None:
            self.add(new, now)
        elif known.place is FLYING:
            self.keep(old, new)
        else:
            known.pod = new
            if known.place in {PARKED, GATED}:
                for event in pod_update_events(old, new):
                    strategy = self.worth(known, event, old, new)
                    if strategy != SKIP:
                        self.requeue(known, strategy, now)
                    if known.place in {ACTIVE, BACKOFF}:
                        break

    def delete(self, pod: Pod) -> None:
        known = self.find(pod.uid)
        if known and known.place is not FLYING:
            self.leave(known)

    def enter(self, new: ModelPod) -> None:
        self.pods.append(new)
        self.names[new.pod.name] = new

    def leave(self, gone: ModelPod) -> None:
        self.pods.remove(gone)
        if self.names.get(gone.pod.name) is gone:
            del self.names[gone.pod.name]

    # ------------------------------------------------------------ attempts

    def pop(self) -> ModelPod | None:
        first = min(self.at(ACTIVE), key=lambda p: p.order, default=None)
        if first is None:
            first = min(self.at(BACKOFF), key=lambda p: (p.expiration, p.order), default=None)
        if first is not None:
            first.attempts += 1
            first.place = FLYING
            self.flight.append(first)
        return first

    def done(self, flying: ModelPod) -> None:
        self.land(flying)
        self.leave(flying)

    def land(self, flying: ModelPod) -> None:
        self.flight.remove(flying)
        while self.flight and isinstance(self.flight[0], tuple):
            del self.flight[0]

    def fail(self, failed: ModelPod, now: float) -> bool:
        """False if the pod is not taken back because it, or its successor, is here already."""
        flying = failed in self.pods
        known = self.find(failed.pod.uid)
        for other in (known, self.names.get(failed.pod.name)):
            if other is not None and other is not failed:
                if flying:
                    self.done(failed)
                return False
        if failed.rejectors:
            failed.rejections += 1
            failed.errors = 0
        else:
            failed.errors += 1
        failed.timestamp = now
        failed.flushed = False
        strategy = AFTER_BACKOFF
        if flying and failed.rejectors:
            since = self.flight[self.flight.index(failed) + 1 :]
            events = [item for item in since if isinstance(item, tuple)]
            strategy = max((self.worth(failed, *event) for event in events), default=SKIP)
        if flying:
            self.land(failed)
        else:
            self.enter(failed)
        self.requeue(failed, strategy, now)
        return True

    # ------------------------------------------------------------ events and time

    def move_all(self, event, old, new, now, precheck=lambda _: True) -> None:
        if not event.wildcard and not any(self.matching(profile, event) for profile in self.hints):
            return
        for pod in self.at(PARKED, GATED):
            gates = {r.plugin for profile in self.hints for r in self.matching(profile, event)}
            if not precheck(pod.pod) or (pod.place is GATED and pod.gate not in gates):
                continue
            strategy = self.worth(pod, event, old, new)
            if strategy != SKIP:
                self.requeue(pod, strategy, now)
        self.record(event, old, new)

    def activate(self, pods: Iterable[Pod], now: float) -> None:
        for pod in pods:
            known = self.find(pod.uid)
            if known is None:
                continue
            if known.place in {BACKOFF, ERROR}:
                known.place = ACTIVE
            elif known.place in {PARKED, GATED}:
                self.requeue(known, IMMEDIATELY, now)
            elif known.place is FLYING:
                self.record(FORCE_ACTIVATE, None, pod)

    def flush(self, now: float) -> None:
        for pod in self.at(BACKOFF, ERROR):
            if not pod.backs_off(now):
                pod.place = ACTIVE
        overdue = [p for p in self.at(PARKED) if now - p.timestamp > 300]
        for pod in overdue:
            pod.flushed = True
            self.requeue(pod, AFTER_BACKOFF, now)
        if overdue:
            self.record(UNSCHEDULABLE_TIMEOUT, None, None)

    # ------------------------------------------------------------ rules

    def matching(self, profile: str, event: ClusterEvent):
        return [r for r in self.hints.get(profile, ()) if r.event.matches(event)]

    def record(self, event, old, new) -> None:
        if self.at(FLYING):
            self.flight.append((event, old, new))

    def keep(self, old: Pod, new: Pod) -> None:
        for event in pod_update_events(old, new):
            self.record(event, old, new)

    def worth(self, waiting: ModelPod, event, old, new) -> int:
        profile = waiting.pod.spec.scheduler_name
        if not waiting.rejectors:
            return AFTER_BACKOFF
        if event.wildcard:
            return AFTER_BACKOFF if new is None or new.uid == waiting.pod.uid else SKIP
        if profile not in self.hints:
            return AFTER_BACKOFF
        welcome = {
            r.plugin
            for r in self.matching(profile, event)
            if r.plugin in waiting.rejectors and (r.hint is None or r.hint(waiting.pod, old, new))
        }
        if welcome & waiting.pending:
            return IMMEDIATELY
        return AFTER_BACKOFF if welcome else SKIP

    def requeue(self, pod: ModelPod, strategy: int, now: float) -> None:
        if strategy == SKIP:
            pod.place = PARKED
        elif not self.admits(pod):
            pod.place = GATED
        elif strategy == AFTER_BACKOFF and pod.backs_off(now):
            pod.place = BACKOFF if pod.rejectors else ERROR
        else:
            pod.place = ACTIVE

    def admits(self, pod: ModelPod) -> bool:
        verdicts = list(self.gates(pod.pod))
        first = [v for v in verdicts if v[0] == pod.gate]
        for plugin, closed in first + [v for v in verdicts if v[0] != pod.gate]:
            if closed:
                pod.unschedulable = pod.unschedulable | {plugin}
                pod.gate = plugin
                return False
        pod.gate = ""
        return True
