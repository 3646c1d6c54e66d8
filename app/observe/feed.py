"""The feed of the running scheduler: a snapshot, then changes, for the dashboard and ``top`` (docs/dashboard.md).

A message is a JSON object with ``version``, ``time`` (seconds since the epoch) and sections. A snapshot has all sections, a
change those that changed. ``nodes`` of a change has only the rows that changed; ``decisions``, ``preemptions`` and ``series``
of a change are to be appended. Pods are counts per node, so the size of a message does not depend on their number.

Everything is computed once for all listeners, and only while there are any (app.serving.feed).
"""

import json
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from app.model.objects import Node
from app.model.requests import PODS, allocatable_units
from app.observe.events import AttemptFailed, PodBound, PreemptionStarted, SchedulerEvent, by_type
from app.observe.explain import Leadership
from app.observe.histories import AttemptRecord, Histories
from app.observe.metrics.extenders import ExtenderMetrics
from app.observe.metrics.scheduler import AttemptMetrics, QueueMetrics
from app.observe.metrics.series import quantile
from app.state.columns.resources import Int64
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import SchedulerState

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
#: With more Node objects changed at once, a snapshot is sent to all listeners.
MAX_OBJECTS: Final = 256
#: Labels with more values are left out.
MAX_LABEL_VALUES: Final = 256
_ROWS_AT_ONCE: Final = 256
_NO_ROWS: Final[Int64] = np.zeros(0, np.int64)
#: Flags of a row: no pods are placed there; pods are there, but there is no Node object.
UNSCHEDULABLE_FLAG: Final = 1
UNKNOWN_FLAG: Final = 2

#: Name, problem (empty if there is none), and whether readiness fails with it.
Health = tuple[str, str, bool]
Steps = Generator[None, None, None]


class RecentEvents:
    """A sink that keeps what happened since the feed last asked, while it listens."""

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall: Final = wall
        self.listening = False
        self._decisions: deque[list[Any]] = deque(maxlen=MAX_DECISIONS)
        self._omitted = 0
        self._preemptions: deque[list[Any]] = deque(maxlen=MAX_PREEMPTIONS)
        self._handle: Final = by_type(
            {
                PodBound: self._bound,
                AttemptFailed: self._failed,
                PreemptionStarted: self._preempting,
            }
        )

    def on(self, event: SchedulerEvent) -> None:
        """Keeps decisions and preemptions."""
        if self.listening:
            self._handle(event)

    def _bound(self, event: PodBound) -> None:
        pod, attempts = event.pod, event.queued.attempts
        self._decided([event.now, pod.key, "bound", pod.node_name, event.seconds, attempts])

    def _failed(self, event: AttemptFailed) -> None:
        queued, where = event.queued, event.nominated_node or ""
        decision = [self._wall(), queued.pod.key, event.result, where, event.seconds]
        self._decided([*decision, queued.attempts, event.message[:MAX_MESSAGE]])

    def _decided(self, decision: list[Any]) -> None:
        """Time, pod, result, node, seconds, attempts and, if it failed, the message."""
        self._omitted += len(self._decisions) == MAX_DECISIONS
        self._decisions.append(decision)

    def _preempting(self, event: PreemptionStarted) -> None:
        victims = [victim.key for victim in event.victims[:MAX_VICTIMS]]
        count = len(event.victims)
        self._preemptions.append([self._wall(), event.preemptor.key, event.node, victims, count])

    def take(self) -> tuple[list[list[Any]], int, list[list[Any]]]:
        """Decisions, how many more there were, and preemptions since the last call."""
        taken = list(self._decisions), self._omitted, list(self._preemptions)
        self.clear()
        return taken

    def clear(self) -> None:
        """Drops everything."""
        self._decisions.clear()
        self._preemptions.clear()
        self._omitted = 0


class FeedSources(NamedTuple):
    """What the feed is computed from."""

    state: SchedulerState
    events: RecentEvents
    histories: Histories
    attempts: AttemptMetrics
    queue: QueueMetrics
    extenders: ExtenderMetrics
    health: Callable[[], Iterable[Health]]
    leadership: Callable[[], Leadership]
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    version: str
    profiles: Sequence[str]


class Feed:
    """Computes snapshots and changes. ``open`` before the first, ``close`` after the last; then it can be opened again."""

    def __init__(self, sources: FeedSources) -> None:
        self._sources: Final = sources
        #: The number of the last change.
        self.version = 0
        self._reset()

    def _reset(self) -> None:
        self._changes: deque[tuple[int, bytes]] = deque(maxlen=KEPT_CHANGES)
        self._nodes = _NodeRows(self._sources.state)
        #: The sections as they were last sent, encoded.
        self._sections: dict[str, bytes] = {}
        self._decisions: deque[list[Any]] = deque(maxlen=MAX_DECISIONS)
        self._preemptions: deque[list[Any]] = deque(maxlen=MAX_PREEMPTIONS)
        self._series: deque[list[float]] = deque(maxlen=MAX_POINTS)
        self._window: deque[_Counted] = deque()
        self._snapshot = b""
        self._time = 0.0
        self._slow_at = self._point_at = -np.inf

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
        """The changes after a version, with their numbers; None if they are not all known, so that a snapshot is needed."""
        if version == self.version:
            return []
        if version > self.version or not self._changes or version + 1 < self._changes[0][0]:
            return None
        return [change for change in self._changes if change[0] > version]

    def snapshot(self) -> Generator[None, None, bytes]:
        """The snapshot of the present version, in steps of a few milliseconds; nothing may change in between."""
        if not self._snapshot:
            nodes = yield from self._nodes.snapshot()
            streams = {
                "decisions": list(self._decisions),
                "preemptions": list(self._preemptions),
                "series": list(self._series),
            }
            parts = self._sections | {name: encoded(value) for name, value in streams.items()}
            self._snapshot = self._message({"nodes": nodes} | parts)
        return self._snapshot

    def _message(self, sections: Mapping[str, bytes]) -> bytes:
        body = b"".join(b',"%b":%b' % (name.encode(), part) for name, part in sections.items())
        return b'{"version":%d,"time":%.3f%b}' % (self.version, self._time, body)

    def advance(self) -> None:
        """Computes the next change."""
        self.version += 1
        self._snapshot = b""
        now, self._time = self._sources.monotonic(), self._sources.wall()
        fresh = {name: encoded(value) for name, value in self._present(now).items()}
        changed = {name: part for name, part in fresh.items() if self._sections.get(name) != part}
        self._sections |= changed
        streams = self._streams(now)
        nodes = self._nodes.changes()
        if nodes is None:
            self._changes.clear()
            return
        if nodes:
            changed["nodes"] = encoded(nodes)
        changed |= {name: encoded(value) for name, value in streams.items() if value}
        self._changes.append((self.version, self._message(changed)))

    # ------------------------------------------------------------ sections

    def _present(self, now: float) -> dict[str, Any]:
        """The sections that are sent when they change."""
        sources = self._sources
        self._count(now)
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
            "rates": self._rates(),
            "extenders": list(self._extenders()),
        }
        if now - self._slow_at >= SLOW_SECONDS:
            self._slow_at = now
            found["health"] = list(sources.health())
            found["waiting"], found["reasons"] = self._waiting()
        return found

    def _streams(self, now: float) -> dict[str, Any]:
        """The sections that are appended to."""
        decisions, omitted, preemptions = self._sources.events.take()
        self._decisions.extend(decisions)
        self._preemptions.extend(preemptions)
        point: list[list[float]] = []
        if now - self._point_at >= POINT_SECONDS:
            self._point_at = now
            point = [self._point()]
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
        if queued.gating_plugin:
            return f"{queued.gating_plugin}: {queued.gating_status.message}"[:MAX_MESSAGE]
        if not queued.attempts:
            return ""
        history = self._sources.histories.of(queued.pod.namespace, queued.pod.name)
        for attempt in reversed(history.attempts if history is not None else ()):
            if attempt.message:
                return attempt.message[:MAX_MESSAGE]
        return f"rejected by {', '.join(sorted(queued.rejectors))}" if queued.rejectors else ""

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
        taken = [b - a for a, b in zip(first.attempts, last.attempts, strict=True)]
        chosen = [b - a for a, b in zip(first.algorithm, last.algorithm, strict=True)]
        return {
            "perSecond": {
                result: round((count - first.results.get(result, 0.0)) / seconds, 1)
                for result, count in last.results.items()
            },
            "attempt": [_rounded(quantile(bounds, taken, q)) for q in (0.5, 0.99)],
            "algorithm": [_rounded(quantile(bounds, chosen, q)) for q in (0.5, 0.99)],
        }

    def _point(self) -> list[Any]:
        """Time; active, backing off, unschedulable, gated; attempts a second by result; p50 and p99 in seconds."""
        queue, rates = self._sources.state.queue.statistics(), self._rates()
        per_second = rates["perSecond"]
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
            counts = [b - a for a, b in zip(before, now, strict=True)]
            latency = [_rounded(quantile(bounds, counts, q)) for q in (0.5, 0.99)]
            yield {**figures, "latency": latency}


class _Counted(NamedTuple):
    """Counters at a time."""

    at: float
    results: dict[str, float]
    attempts: list[int]
    algorithm: list[int]
    calls: dict[tuple[str, str], list[int]]


class _NodeRows:
    """The rows of the node table as they were last sent."""

    def __init__(self, state: SchedulerState) -> None:
        self._table: Final = state.table
        self._generation = -1
        self._names: list[str] = []
        self._nodes: list[Node | None] = []
        self._numbers: dict[str, Int64] = {}
        self._allocatable: dict[str, Int64] = {}
        self._objects = b""
        #: Labels that are left out.
        self._left_out: set[str] = set()

    def _present(self) -> dict[str, Int64]:
        """Requested amounts by resource, and the number of pods."""
        table, size = self._table, self._table.size
        found = {name: table.requested.column(name)[:size].copy() for name in table.requested.names}
        found[PODS] = table.pod_count[:size].copy()
        return found

    def changes(self) -> dict[str, Any] | None:
        """What changed since the last call; None if a snapshot is shorter."""
        table, before = self._table, self._numbers
        rows = table.rows_since(self._generation).tolist() if self._generation >= 0 else []
        first = self._generation < 0
        self._generation = table.last_generation
        self._nodes += [None] * (table.size - len(self._nodes))
        self._names += [""] * (table.size - len(self._names))
        if first:
            rows = range(table.size)
        objects = []
        for row in rows:
            name, node, old = table.names[row], table.nodes[row], self._nodes[row]
            if name != self._names[row] or not _same(old, node):
                objects.append(row)
            self._names[row], self._nodes[row] = name, node
        numbers = self._numbers = self._present()
        if objects:
            self._objects = b""
            self._allocatable = self._amounts()
        if first or len(objects) > MAX_OBJECTS:
            return None
        changed = _changed_rows(before, numbers, table.size)
        found: dict[str, Any] = {}
        if objects:
            found["objects"] = [self._object(row) for row in objects]
        if len(changed):
            found["rows"] = changed.tolist()
            found["requested"] = {
                name: column[changed].tolist() for name, column in numbers.items()
            }
        return found

    def _amounts(self) -> dict[str, Int64]:
        table, size = self._table, self._table.size
        found = {
            name: table.allocatable.column(name)[:size].copy() for name in table.allocatable.names
        }
        found[PODS] = table.allocatable_pods[:size].copy()
        return found

    def _object(self, row: int) -> list[Any]:
        """Row, name, flags, labels, taints, allocatable amounts."""
        node = self._nodes[row]
        flags = _flags(self._names[row], node)
        if node is None:
            return [row, self._names[row], flags, {}, [], {}]
        labels = {k: v for k, v in node.labels.items() if k not in self._left_out}
        amounts = allocatable_units(node.status.allocatable)
        return [row, self._names[row], flags, labels, _taints(node), amounts]

    def snapshot(self) -> Generator[None, None, bytes]:
        """All rows as columns, in steps. Labels and taints are numbers of values."""
        if not self._objects:
            yield from self._encode_objects()
        requested = {name: _column(column) for name, column in self._numbers.items()}
        return b'{%b,"requested":%b}' % (self._objects, encoded(requested))

    def _encode_objects(self) -> Steps:
        size = len(self._nodes)
        labels: dict[str, _Encoded] = {}
        taints = _Encoded(size)
        flags: list[int] = []
        self._left_out = set()
        for row, node in enumerate(self._nodes):
            flags.append(_flags(self._names[row], node))
            if node is not None:
                for key, value in node.labels.items():
                    if key not in self._left_out:
                        column = labels.get(key) or labels.setdefault(key, _Encoded(size))
                        column.set(row, value)
                        if len(column.values) > MAX_LABEL_VALUES:
                            self._left_out.add(key)
                            del labels[key]
                if node.spec.taints:
                    taints.set(row, tuple(map(tuple, _taints(node))))
            if row % _ROWS_AT_ONCE == 0:
                yield
        parts = [b'"names":' + encoded(self._names), b'"flags":' + encoded(flags)]
        parts.append(b'"taints":' + encoded(taints.packed()))
        amounts = {name: _column(column) for name, column in self._allocatable.items()}
        parts.append(b'"allocatable":' + encoded(amounts))
        keyed = []
        for key, column in labels.items():
            keyed.append(b"%b:%b" % (encoded(key), encoded(column.packed())))
            yield
        parts.append(b'"labels":{%b}' % b",".join(keyed))
        self._objects = b",".join(parts)


class _Encoded:
    """A column of values as numbers; 0 is none."""

    def __init__(self, size: int) -> None:
        self.values: Final[dict[Any, int]] = {}
        self._codes: Final = [0] * size

    def set(self, row: int, value: Any) -> None:
        """Sets the value of a row."""
        self._codes[row] = self.values.setdefault(value, len(self.values) + 1)

    def packed(self) -> dict[str, Any]:
        """The values, and the number of each row's."""
        return {"values": list(self.values), "codes": self._codes}


def _flags(name: str, node: Node | None) -> int:
    if node is None:
        return UNKNOWN_FLAG if name else 0
    return UNSCHEDULABLE_FLAG if node.spec.unschedulable else 0


def _same(old: Node | None, new: Node | None) -> bool:
    """Whether two versions of a node look the same in the feed."""
    if old is new:
        return True
    if old is None or new is None:
        return False
    return (
        old.labels == new.labels
        and old.spec == new.spec
        and old.status.allocatable == new.status.allocatable
    )


def _taints(node: Node) -> list[list[str]]:
    return [[taint.key, taint.value, taint.effect] for taint in node.spec.taints or ()]


def _changed_rows(before: Mapping[str, Int64], after: Mapping[str, Int64], size: int) -> Int64:
    """The rows in which any number differs; rows and columns that were not there were 0."""
    changed = np.zeros(size, bool)
    for name in before.keys() | after.keys():
        old, new = before.get(name, _NO_ROWS), after.get(name, _NO_ROWS)
        both = min(len(old), len(new))
        changed[:both] |= old[:both] != new[:both]
        changed[both : len(old)] |= old[both:] != 0
        changed[both : len(new)] |= new[both:] != 0
    return np.flatnonzero(changed)


def _column(column: Int64) -> list[int] | int:
    """The numbers of a column; one number if all are equal."""
    if len(column) and bool((column == column[0]).all()):
        return int(column[0])
    return column.tolist()  # type: ignore[no-any-return]  # numpy says Any


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


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


def encoded(value: Any) -> bytes:
    """A value as JSON; texts with lone surrogates are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value, str_keys=True)).encode()
