"""The feed of the running scheduler: a snapshot, then changes, for the dashboard and ``top`` (docs/dashboard.md).

A message is a JSON object with ``version``, ``time`` (seconds since the epoch) and sections. A snapshot has all
sections, a change those that changed. ``nodes`` of a change has only the rows that changed; ``decisions``,
``preemptions`` and ``series`` of a change are to be appended. Pods are counts per node, so the size of a message does
not depend on their number.

Everything is computed once for all listeners, and only while there are any (app.serving.feed).
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from app.observe.events import AttemptFailed, ByType, PodBound, PreemptionStarted
from app.observe.explain import Leadership
from app.observe.feed_nodes import NodeRows
from app.observe.group_histories import GroupHistories, waits_for
from app.observe.histories import AttemptRecord, Histories
from app.observe.metrics.extenders import ExtenderMetrics
from app.observe.metrics.scheduler import AttemptMetrics, QueueMetrics
from app.observe.metrics.series import quantile
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import SchedulerState
from app.wire.sanitize import encode

#: Changes that are kept for listeners that are late.
KEPT_CHANGES: Final = 20
#: Decisions in one change, and in a snapshot; more are only counted.
MAX_DECISIONS: Final = 100
MAX_PREEMPTIONS: Final = 50
#: Victims named for one preemption.
MAX_VICTIMS: Final = 10
#: Waiting pods that are named, and whose reasons are counted: those that arrived first.
MAX_WAITING: Final = 50
MAX_COUNTED: Final = 2000
MAX_REASONS: Final = 20
#: Characters of a message.
MAX_MESSAGE: Final = 400
#: Points of the time series, and seconds between two of them.
MAX_POINTS: Final = 600
POINT_SECONDS: Final = 1.0
#: Seconds between two computations of the sections that cost more.
SLOW_SECONDS: Final = 2.0
#: Rates and latencies are those of the last seconds.
WINDOW_SECONDS: Final = 10.0

#: The plugins that gate a pod for its group; the empty one gates none.
_GANGS: Final = ("", "GangScheduling")

#: Name, problem (empty if there is none), and whether readiness fails with it.
Health = tuple[str, str, bool]


class RecentEvents:
    """A sink that keeps the last events since the feed last asked, while it listens."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall: Final = wall
        self.listening = False
        #: With the time of each.
        self._ended: deque[tuple[float, PodBound | AttemptFailed]] = deque(maxlen=MAX_DECISIONS)
        self._preempting: deque[tuple[float, PreemptionStarted]] = deque(maxlen=MAX_PREEMPTIONS)
        self._omitted = 0
        #: Keeps the ends of attempts, and preemptions.
        self.on: Final = ByType(
            {
                PodBound: self._keep_end,
                AttemptFailed: self._keep_end,
                PreemptionStarted: self._keep_preemption,
            }
        )

    def _keep_end(self, event: PodBound | AttemptFailed) -> None:
        if self.listening:
            self._omitted += len(self._ended) == MAX_DECISIONS
            self._ended.append((self._wall(), event))

    def _keep_preemption(self, event: PreemptionStarted) -> None:
        if self.listening:
            self._preempting.append((self._wall(), event))

    def take(self) -> tuple[list[list[Any]], int, list[list[Any]]]:
        """Decisions, how many more there were, and preemptions since the last call."""
        decisions = [_ended(at, event) for at, event in self._ended]
        preemptions = [_preempting(at, event) for at, event in self._preempting]
        taken = decisions, self._omitted, preemptions
        self.clear()
        return taken

    def clear(self) -> None:
        """Drops everything."""
        self._ended.clear()
        self._preempting.clear()
        self._omitted = 0


def _ended(at: float, event: PodBound | AttemptFailed) -> list[Any]:
    """Time, pod, result, node, seconds, attempts and, if it failed, the message."""
    attempts = event.queued.attempts
    if isinstance(event, PodBound):
        pod = event.pod
        return [event.now, pod.key, "bound", pod.node_name, event.seconds, attempts]
    key, node = event.queued.pod.key, event.nominated_node or ""
    return [at, key, event.result, node, event.seconds, attempts, event.message[:MAX_MESSAGE]]


def _preempting(at: float, event: PreemptionStarted) -> list[Any]:
    """Time, preemptor, node, some victims, and how many there are."""
    victims = [victim.key for victim in event.victims[:MAX_VICTIMS]]
    return [at, event.preemptor.key, event.node, victims, len(event.victims)]


class FeedSources(msgspec.Struct, frozen=True):
    """What the feed is computed from."""

    state: SchedulerState
    events: RecentEvents
    histories: Histories
    groups: GroupHistories
    attempts: AttemptMetrics
    queue: QueueMetrics
    extenders: ExtenderMetrics
    #: By reason: pods that a kubelet rejected.
    kubelet_rejections: Mapping[str, int]
    health: Callable[[], Iterable[Health]]
    leadership: Callable[[], Leadership]
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    version: str
    profiles: Sequence[str]


class Feed:
    """Computes snapshots and changes. ``open`` before the first, ``close`` after the last; then it can be opened again.

    Both are made once for all listeners: as server-sent events, whose ids are ``instance``, which tells this process
    from an earlier one at the same address, and the version.
    """

    def __init__(self, sources: FeedSources) -> None:
        self._sources: Final = sources
        self.instance: Final = int(sources.wall() * 1000)
        #: The number of the last change.
        self.version = 0
        self._reset()

    def _reset(self) -> None:
        self._changes: deque[tuple[int, bytes]] = deque(maxlen=KEPT_CHANGES)
        self._nodes = NodeRows(self._sources.state.table)
        #: The sections as they were last sent, encoded.
        self._sections: dict[str, bytes] = {}
        self._decisions: deque[list[Any]] = deque(maxlen=MAX_DECISIONS)
        self._preemptions: deque[list[Any]] = deque(maxlen=MAX_PREEMPTIONS)
        self._series: deque[list[float]] = deque(maxlen=MAX_POINTS)
        self._window: deque[_Counted] = deque()
        self._snapshot = b""
        self._time = 0.0
        self._slow_at = self._point_at = -math.inf

    def open(self) -> None:
        """Begins with what the pod histories know."""
        self._reset()
        self._sources.events.clear()
        self._sources.events.listening = True
        for history in reversed(self._sources.histories.latest(MAX_COUNTED)):
            key = f"{history.namespace}/{history.name}"
            for attempt in history.attempts[-1:]:
                if attempt.result in {"bound", "unschedulable", "error"}:
                    self._decisions.append(_decision(key, attempt))
            for attempt in history.attempts:
                if attempt.victims:
                    some = list(attempt.victim_pods)
                    self._preemptions.append(
                        [attempt.at, key, attempt.nominated_node or "", some, attempt.victims]
                    )

    def close(self) -> None:
        """Forgets everything; no events are kept from now on."""
        self._sources.events.listening = False
        self._sources.events.clear()
        self._reset()

    # ------------------------------------------------------------ messages

    def since(self, version: int) -> list[tuple[int, bytes]] | None:
        """The changes after a version, with their versions; None if they are not all known, so that a snapshot is
        needed.
        """
        if version == self.version:
            return []
        if version > self.version or not self._changes or version + 1 < self._changes[0][0]:
            return None
        return [change for change in self._changes if change[0] > version]

    def snapshot(self) -> Generator[None, None, bytes]:
        """The snapshot of the present version, in steps of a few milliseconds; ``advance`` must not be called in
        between.
        """
        if not self._snapshot:
            nodes = yield from self._nodes.snapshot()
            streams = {
                "decisions": list(self._decisions),
                "preemptions": list(self._preemptions),
                "series": list(self._series),
            }
            parts = self._sections | {name: encode(value) for name, value in streams.items()}
            self._snapshot = self._event(b"snapshot", {"nodes": nodes} | parts)
        return self._snapshot

    def _event(self, kind: bytes, sections: Mapping[str, bytes]) -> bytes:
        body = b"".join(b',"%b":%b' % (name.encode(), part) for name, part in sections.items())
        head = b"event: %b\nid: %d-%d\n" % (kind, self.instance, self.version)
        start = b'data: {"version":%d,"time":%.3f' % (self.version, self._time)
        return b"%b%b%b}\n\n" % (head, start, body)

    def advance(self) -> Generator[None, None, None]:
        """Computes the next change, in steps of a few milliseconds.

        If it is not completed, the next one is a snapshot.
        """
        try:
            nodes = yield from self._nodes.changes()
        except BaseException:
            self._nodes = NodeRows(self._sources.state.table)
            raise
        self.version += 1
        self._snapshot = b""
        now, self._time = self._sources.monotonic(), self._sources.wall()
        self._count(now)
        rates = self._rates()
        fresh = {name: encode(value) for name, value in self._present(now, rates).items()}
        changed = {name: part for name, part in fresh.items() if self._sections.get(name) != part}
        self._sections |= changed
        streams = self._streams(now, rates)
        if nodes is None:
            self._changes.clear()
            return
        if nodes:
            changed["nodes"] = encode(nodes)
        changed |= {name: encode(value) for name, value in streams.items() if value}
        self._changes.append((self.version, self._event(b"change", changed)))

    # ------------------------------------------------------------ sections

    def _present(self, now: float, rates: Mapping[str, Any]) -> dict[str, Any]:
        """The sections that are sent when they change."""
        sources = self._sources
        leadership = sources.leadership()
        found: dict[str, Any] = {
            "scheduler": {
                "version": sources.version,
                "profiles": list(sources.profiles),
                "leading": leadership.leading,
                "identity": leadership.identity,
                "holder": leadership.holder,
            },
            "queue": msgspec.structs.asdict(sources.state.queue.statistics()),
            "rejectors": sources.queue.rejected_by(),
            "rates": rates,
            "extenders": list(self._extenders()),
            "kubeletRejections": dict(sources.kubelet_rejections),
        }
        if now - self._slow_at >= SLOW_SECONDS:
            self._slow_at = now
            found["health"] = list(sources.health())
            found["waiting"], found["reasons"] = self._waiting()
        return found

    def _streams(self, now: float, rates: Mapping[str, Any]) -> dict[str, Any]:
        """The sections that are appended to."""
        decisions, omitted, preemptions = self._sources.events.take()
        self._decisions.extend(decisions)
        self._preemptions.extend(preemptions)
        point: list[list[float]] = []
        if now - self._point_at >= POINT_SECONDS:
            self._point_at = now
            point = [self._point(rates)]
            self._series.extend(point)
        found = {"decisions": decisions, "preemptions": preemptions, "series": point}
        return found | ({"omitted": omitted} if omitted else {})

    def _waiting(self) -> tuple[list[dict[str, Any]], list[list[Any]]]:
        """The pods that have waited longest, and how many pods wait for each reason."""
        reasons: Counter[str] = Counter()
        pods: list[dict[str, Any]] = []
        for queued in self._sources.state.queue.earliest(MAX_COUNTED):
            message = self._message_of(queued)
            reasons[message] += bool(message)
            if len(pods) < MAX_WAITING:
                pods.append(_waiting_pod(queued, message))
        return pods, [[text, count] for text, count in reasons.most_common(MAX_REASONS) if count]

    def _message_of(self, queued: QueuedPod) -> str:
        if queued.gating_plugin in _GANGS and (told := self._group_waits_for(queued)):
            return told[:MAX_MESSAGE]
        if queued.gating_plugin:
            return f"{queued.gating_plugin}: {queued.gating_status.message}"[:MAX_MESSAGE]
        if not queued.attempts:
            return ""
        history = self._sources.histories.of(queued.pod.namespace, queued.pod.name)
        for attempt in reversed(history.attempts if history is not None else ()):
            if attempt.message:
                return attempt.message[:MAX_MESSAGE]
        return f"rejected by {', '.join(sorted(queued.rejectors))}" if queued.rejectors else ""

    def _group_waits_for(self, queued: QueuedPod) -> str:
        groups = self._sources.state.cluster.pod_groups
        key = groups.key_of(queued.pod)
        if key is None:
            return ""
        cycles = self._sources.groups.of(key)
        pods = len(groups.members(key))
        return waits_for(key, groups.get(key), pods, cycles[-1] if cycles else None)

    # ------------------------------------------------------------ rates

    def _count(self, now: float) -> None:
        """Notes the counters, of which rates are differences over the window."""
        sources = self._sources
        calls = sources.extenders.latencies()
        attempts = sources.attempts
        counted = _Counted(now, attempts.results(), attempts.counts(), attempts.algorithm(), calls)
        self._window.append(counted)
        while len(self._window) > 2 and now - self._window[1].at >= WINDOW_SECONDS:
            self._window.popleft()

    def _rates(self) -> dict[str, Any]:
        first, last = self._window[0], self._window[-1]
        seconds = (last.at - first.at) or 1.0
        bounds = self._sources.attempts.bounds
        return {
            "perSecond": {
                result: round((count - first.results.get(result, 0.0)) / seconds, 1)
                for result, count in last.results.items()
            },
            "attempt": _latency(bounds, first.attempts, last.attempts),
            "algorithm": _latency(bounds, first.algorithm, last.algorithm),
        }

    def _point(self, rates: Mapping[str, Any]) -> list[Any]:
        """Time; active, backing off, unschedulable, gated; attempts a second by result; p50 and p99 in seconds."""
        queue, per_second = self._sources.state.queue.statistics(), rates["perSecond"]
        return [
            round(self._time, 1),
            queue.active + queue.in_flight,
            queue.backoff + queue.error_backoff,
            queue.unschedulable,
            queue.gated,
            *(per_second.get(result, 0.0) for result in ("scheduled", "unschedulable", "error")),
            *rates["attempt"],
        ]

    def _extenders(self) -> Iterable[dict[str, Any]]:
        first, bounds = self._window[0].calls, self._sources.extenders.bounds
        last = self._window[-1].calls
        for figures in self._sources.extenders.figures():
            key = figures["extender"], figures["verb"]
            now = last.get(key, [])
            before = first.get(key) or [0] * len(now)
            yield {**figures, "latency": _latency(bounds, before, now)}


class _Counted(msgspec.Struct, frozen=True):
    """Counters at a time."""

    at: float
    results: dict[str, float]
    attempts: list[int]
    algorithm: list[int]
    calls: dict[tuple[str, str], list[int]]


def _latency(
    bounds: Sequence[float], before: Sequence[int], now: Sequence[int]
) -> list[float | None]:
    """p50 and p99 in seconds of what was counted in between; None if that is nothing."""
    counts = [b - a for a, b in zip(before, now, strict=True)]
    found = (quantile(bounds, counts, q) for q in (0.5, 0.99))
    return [None if value is None else round(value, 6) for value in found]


def _decision(key: str, attempt: AttemptRecord) -> list[Any]:
    """Time, pod, result, node, seconds, attempts and, if it failed, the message."""
    where = attempt.node or attempt.nominated_node or ""
    found = [attempt.at, key, attempt.result, where, attempt.seconds, attempt.number]
    return [*found, attempt.message[:MAX_MESSAGE]] if attempt.message else found


def _waiting_pod(queued: QueuedPod, message: str) -> dict[str, Any]:
    since = queued.initial_attempt_timestamp
    return {
        "pod": queued.pod.key,
        "place": queued.place.value,
        "since": queued.timestamp if since is None else since,
        "attempts": queued.attempts,
        "priority": queued.pod.priority,
        "nominated": queued.pod.nominated_node_name,
        "message": message,
    }
