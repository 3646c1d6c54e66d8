"""What became of each pod of a recording: when it came, was bound, ran and went, and what the scheduler said of it."""

import bisect
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from pathlib import Path
from statistics import median
from typing import Any, Final

import msgspec
import numpy as np

from app.scheduler.trace import Header, Op, TraceError
from app.settings.load import load
from app.settings.problems import ConfigurationError
from app.tools.replay.cassette import Cassette
from app.tools.replay.reading import Objects, Seen, SeenPod, TraceRecord, records

#: Durations that are kept for a median.
_MOST: Final = 10_000
#: Times the median beyond which an attempt has waited for others, who are in the replay themselves.
_LONGEST: Final = 4
#: Seconds of a request, at most: others are not taken for true.
_LONGEST_REQUEST: Final = 3600.0
#: Requests and attempts whose times are known.
_MOMENTS: Final = 1 << 16
#: Part of the requests that the client may send from which it is taken to be at its limit.
_LIMITED: Final = 0.9


class PodStory(msgspec.Struct):
    """One pod. All times are seconds since the epoch, None if it did not come to that."""

    name: str
    #: The recorded scheduler was responsible for it, and it had no node when it was first seen.
    ours: bool
    scheduler: str
    priority: int
    template: bytes
    arrived: float
    bound: float | None = None
    node: str = ""
    running: float | None = None
    gone: float | None = None
    #: It was a victim.
    evicted: bool = False
    #: Seconds that it runs, from its binding: for a victim more than it was seen; None: to the end.
    life: float | None = None
    #: Why it fitted nowhere, the last time.
    unfit: str = ""


class Story:
    """A whole recording."""

    def __init__(self, header: Header) -> None:
        self.header: Final = header
        self.pods: Final[dict[str, PodStory]] = {}
        self.began = self.ended = header.began
        #: When the first pod was tried; what was seen before is what the scheduler began with.
        self.started: float | None = None
        self.preempted = 0
        #: Why not all of it was read; empty if it was.
        self.incomplete = ""
        #: Seconds of requests to the API server by method, and of attempts that found a node, or none.
        self._requests: Final[dict[str, list[float]]] = {}
        self._attempts: Final[list[float]] = []
        self._failures: Final[list[float]] = []
        self._terminating: Final[list[float]] = []
        self.cassette: Final = Cassette()

    def latencies(self, method: str) -> Iterator[float]:
        """Seconds that requests of this method took, in their order, over and over."""
        return itertools.cycle(self._requests.get(method) or [0.0])

    def attempts(self) -> Iterator[float]:
        """Seconds that the scheduler was busy with pods, from the queue to the request that binds: as ``latencies``."""
        return _recurring(self._attempts)

    def failures(self) -> Iterator[float]:
        """The same of pods that went back to the queue."""
        return _recurring(self._failures or self._attempts)

    @property
    def grace(self) -> float:
        """Seconds from a pod's deletion until it has gone."""
        return median(self._terminating or [0.0])

    def settle(self, tried: AbstractSet[str], ended: float) -> None:
        """All has been read; ``tried``: the uids of pods that the scheduler has tried."""
        self.ended = max(ended, self.began)
        self.started = self.ended if self.started is None else self.started
        schedulers = self._schedulers() if self.header.observed else None
        for uid, pod in self.pods.items():
            decided = uid in tried if schedulers is None else pod.scheduler in schedulers
            pod.ours = pod.ours and (pod.bound is None or decided)
        if schedulers is not None:
            arrivals = (pod.arrived for pod in self.pods.values() if pod.ours)
            self.started = min(arrivals, default=self.ended)
        self._find_lives()
        self.cassette.settle()

    def _find_lives(self) -> None:
        """Says how long each pod runs. A victim runs as long as another pod that ran longer, of its template if there
        are others, drawn as in each replay. One that has not ended counts if it has run longer than all that have.
        """
        lives: dict[bytes, list[float]] = {}
        ran = [
            (pod, max(0.0, (pod.gone or self.ended) - pod.bound))
            for pod in self.pods.values()
            if pod.bound is not None
        ]
        for pod, seconds in ran:
            if not pod.evicted and pod.gone is not None:
                pod.life = seconds
                lives.setdefault(pod.template, []).append(seconds)
        longest = {template: max(known) for template, known in lives.items()}
        for pod, seconds in ran:
            if not pod.evicted and pod.gone is None and seconds > longest.get(pod.template, 0.0):
                lives.setdefault(pod.template, []).append(math.inf)
        for known in lives.values():
            known.sort()
        everything = sorted(itertools.chain.from_iterable(lives.values()))
        rng = np.random.default_rng(0)
        for pod, seconds in ran:
            if pod.evicted and pod.gone is not None:
                known = lives.get(pod.template, everything)
                longer = bisect.bisect_right(known, seconds)
                life = known[rng.integers(longer, len(known))] if longer < len(known) else seconds
                pod.life = life if known and life < math.inf else None

    def _schedulers(self) -> AbstractSet[str]:
        """The schedulers whose pods another one would decide about."""
        configuration = load(self.header.configuration).settings.configuration
        return {profile.scheduler_name for profile in configuration.profiles}

    # ------------------------------------------------------------ reading

    def note_request(self, method: str, status: int, seconds: float) -> None:
        """A request to the API server was answered."""
        if 200 <= status < 300:
            known = self._requests.setdefault(method, [])
            if len(known) < _MOST:
                known.append(seconds)

    def note_attempt(self, seconds: float) -> None:
        """A pod was tried, and was about to be bound."""
        if len(self._attempts) < _MOST:
            self._attempts.append(max(0.0, seconds))

    def note_failure(self, seconds: float) -> None:
        """A pod was tried, and goes back to the queue."""
        if len(self._failures) < _MOST:
            self._failures.append(max(0.0, seconds))

    def note_end(self, seconds: float) -> None:
        """A pod was being deleted for so long."""
        if len(self._terminating) < _MOST:
            self._terminating.append(seconds)


def _recurring(attempts: list[float]) -> Iterator[float]:
    """Over and over, but none that is too long for an attempt alone."""
    most = _LONGEST * median(attempts or [0.0])
    return itertools.cycle([min(seconds, most) for seconds in attempts] or [0.0])


def read_story(trace: Path, look: Callable[[int], None] = lambda _records: None) -> Story:
    """Reads a recording up to the first gap. Raises TraceError if nothing can be read."""
    reader: _Reader | None = None
    try:
        for record in records(trace):
            header = record.header
            if header is not None and reader is None:
                reader = _Reader(Story(header))
            elif header is not None and (header.gap or header.first):
                reason = f"{record.file}: records are missing before it"
                return _end(trace, reader, reason)
            if reader is not None:
                reader.take(record)
            if not record.number % 10_000:
                look(record.number)
    except TraceError as error:
        if reader is None:
            raise
        return _end(trace, reader, str(error))
    return _end(trace, reader, "")


def _end(trace: Path, reader: "_Reader | None", incomplete: str) -> Story:
    if reader is None:
        raise TraceError(f"{trace}: it is empty")
    story = reader.story
    story.incomplete = incomplete
    story.settle(reader.tried, reader.objects.now)
    return story


class _Reader:
    def __init__(self, story: Story) -> None:
        self.story: Final = story
        self.objects: Final = Objects()
        self._uids: Final[dict[str, str]] = {}
        self._deleting: Final[dict[str, float]] = {}
        #: Pods that were tried, and when, or when the last extender has answered; when the last binding was sent.
        self._popped: Final[dict[str, float]] = {}
        #: Requests a second that the client may send, and when the last ones were sent, and pods tried.
        self._qps: Final = _qps(story.header)
        self._sends: Final[list[float]] = []
        self._pops: Final[list[float]] = []
        self._sent: float | None = None
        #: Why pods go back to the queue.
        self._messages: Final[dict[str, str]] = {}
        self.tried: Final[set[str]] = set()

    def take(self, record: TraceRecord) -> None:
        """The next record. Raises TraceError."""
        for seen in self.objects.take(record):
            self._see(seen)
        if not record.repeated:
            self._note(record.fields)

    def _see(self, seen: Seen) -> None:
        if seen.kind != "Pod":
            return
        story, pods = self.story, self.story.pods
        if seen.new is None:
            uid = self._uids.pop(seen.key, "")
            if uid in pods:
                pods[uid].gone = seen.time
                if (since := self._deleting.pop(uid, None)) is not None:
                    story.note_end(seen.time - since)
            return
        assert isinstance(seen.new, SeenPod)  # noqa: S101 - of this kind
        told = seen.new.record
        pod = pods.get(told.uid)
        if pod is None:
            self._uids[seen.key] = told.uid
            spec = _SPEC.decode(seen.new.spec)
            pod = pods[told.uid] = PodStory(
                seen.key,
                not told.node_name,
                spec.scheduler_name,
                spec.priority or 0,
                seen.new.spec,
                seen.time,
            )
        story.cassette.note_pod(seen.new)
        if told.node_name and not pod.node:
            pod.node, pod.bound = told.node_name, pod.bound or seen.time
        if told.phase == "Running" and pod.running is None:
            pod.running = seen.time
        if told.deletion_timestamp:
            self._deleting.setdefault(told.uid, seen.time)

    def _tries(self, now: float, uids: Iterable[str]) -> None:
        self.tried.update(uids)
        if self.story.started is None:
            self.story.started = now

    def _evicts(self, victims: Iterable[str]) -> None:
        for uid in victims:
            pod = self.story.pods.get(uid)
            if pod is not None and not pod.evicted:
                pod.evicted = True
                self.story.preempted += 1

    def _note(self, fields: list[Any]) -> None:
        """What the scheduler did."""
        story = self.story
        match fields:
            case [Op.POP, float(now), str(uid), *_]:
                self._tries(now, (uid,))
                self._popped[uid] = now
                _insert(self._pops, now)
            case [Op.POP_GROUP, float(now), list(uids)]:
                self._tries(now, uids)
            case [Op.UNFIT | Op.REJECTED, str(uid), str(message)]:
                self._messages[uid] = message
            case [Op.ASSUMED, str(uid), str()]:
                self.tried.add(uid)
            case [Op.BOUND, str(uid)] if uid in story.pods:
                story.pods[uid].bound = self.objects.now
                popped = self._popped.pop(uid, None)
                if popped is not None and self._sent is not None:
                    self._note_attempt(popped, self._sent)
            case [Op.FAIL, float(now), str(uid), _, list(plugins), list(pending)]:
                self._note_failure(now, uid, unfit=bool(plugins or pending))
            case [Op.EVICT, str(), str(), list(victims)]:
                self._evicts(victims)
            case [Op.REQUEST, float(now), str(method), int(status), float(seconds)]:
                self._note_request(now, method, status, seconds)
                return
            case [Op.CALL, float(now), str(), str(), str(uid), *_]:
                if uid in self._popped:
                    self._popped[uid] = now  # what comes then is the scheduler's own work
                story.cassette.take(fields)
            case _:
                story.cassette.take(fields)
        self._sent = None

    def _note_request(self, now: float, method: str, status: int, seconds: float) -> None:
        if 0.0 <= seconds <= _LONGEST_REQUEST:
            self.story.note_request(method, status, seconds)
            _insert(self._sends, now - seconds)
            self._sent = now - seconds if method == "POST" else None

    def _note_attempt(self, popped: float, sent: float) -> None:
        """How long an attempt took is not known if requests were sent as fast as the client may: its own has waited."""
        limited = self._qps * (sent - popped)
        requests = bisect.bisect_right(self._sends, sent) - bisect.bisect_left(self._sends, popped)
        if limited < 1.0 or requests < _LIMITED * limited:
            self.story.note_attempt(self._worked(popped, sent))

    def _note_failure(self, now: float, uid: str, *, unfit: bool) -> None:
        """``unfit``: plugins have rejected it; otherwise it is an error."""
        message, popped = self._messages.pop(uid, ""), self._popped.pop(uid, None)
        if unfit and (pod := self.story.pods.get(uid)) is not None:
            pod.unfit = message
        if popped is not None:
            self.story.note_failure(self._worked(popped, now))

    def _worked(self, popped: float, until: float) -> float:
        """Seconds from ``popped`` until the event loop did something else, which it cannot during an attempt."""
        for moments in (self._sends, self._pops):
            later = bisect.bisect_right(moments, popped)
            until = min([until, *moments[later : later + 1]])
        return until - popped


def _insert(moments: list[float], moment: float) -> None:
    bisect.insort(moments, moment)
    if len(moments) > _MOMENTS:
        del moments[: _MOMENTS // 2]


def _qps(header: Header) -> float:
    """The recorded limit of the client; none if the configuration cannot be read: who needs it says so."""
    try:
        client = load(header.configuration).settings.configuration.client_connection
    except ConfigurationError:
        return math.inf
    return client.qps if client.qps > 0 else math.inf


class _Spec(msgspec.Struct, rename="camel"):
    scheduler_name: str = ""
    priority: int | None = None


_SPEC: Final = msgspec.json.Decoder(_Spec)
