"""The calls to extenders of a recording: what was asked, and what was answered.

An answer is looked up by what is asked. The same pod and nodes: as recorded, errors and duration included. Other
nodes for it: put together from what was said of each node about this pod, about pods with the same spec and labels,
about pods with the same spec, or about any pod if the extender always said the same of the node, or of all nodes. What
nobody asked is accepted with score 0, and counted as unknown. While the recorded extender failed, questions that were
not asked fail, too.
"""

import asyncio
import bisect
import zlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from app.extender.config import Verb
from app.extender.errors import CallOutcome, TransportError
from app.extender.exchange import ExtenderResponse, Large
from app.extender.transport import HTTPTransport
from app.scheduler.trace import Op
from app.tools.replay.reading import SeenPod
from app.wire.extender_v1 import FILTER_BY_NAME, PRIORITIZE, AnswerError, Body

#: Bytes of packed answers, and nodes about which something is known, that are kept at most.
MAX_PACKED: Final = 256 << 20
MAX_KNOWN: Final = 4_000_000
_MOST_SECONDS: Final = 10_000
#: Seconds within which a call about a pod is the same one as in the recording.
_SAME_SECONDS: Final = 1.0
_LOST: Final = {
    CallOutcome.TIMEOUT: "the recorded call had no answer in time",
    CallOutcome.UNREACHABLE: "the recorded extender could not be reached",
    CallOutcome.BROKEN: "the recorded connection broke",
    CallOutcome.STALE: "the recorded connection was closed",
}
_json: Final = msgspec.json.Encoder().encode
_SUCCESS: Final = frozenset({CallOutcome.SUCCESS, CallOutcome.ERROR, CallOutcome.BAD_ANSWER})

#: What was said of a node: None if it was accepted, else the reason, and whether preemption does not help.
_Verdict = tuple[str, bool] | None
_ANY: Final = object()


class RecordedCall(NamedTuple):
    """A call to an extender."""

    time: float
    extender: str
    verb: Verb
    #: Of the pod; empty if no single pod was asked about.
    uid: str
    outcome: CallOutcome
    seconds: float
    status: int
    answer: bytes
    #: The nodes that were sent, None if that is not known.
    names: list[str] | None
    #: Seconds until the extender may be called again, if it has said so.
    retry_after: float | None = None


def read_call(fields: Sequence[Any], names: Mapping[int, bytes]) -> RecordedCall | None:
    """The call in a record Op.CALL; None if the record is another one, or has values that no call has."""
    match fields:
        case [
            Op.CALL,
            float(at),
            str(who),
            str(verb),
            str(uid),
            str(how),
            float(secs),
            bytes(said),
            *more,
        ]:
            sent = more[0] if more and type(more[0]) is int else 0
            status = more[1] if len(more) > 1 and type(more[1]) is int else 0
            later = more[2] if len(more) > 2 and type(more[2]) is float else None
            text = names.get(sent)
            try:
                listed = None if text is None else msgspec.json.decode(text, type=list[str])
                return RecordedCall(
                    at, who, Verb(verb), uid, CallOutcome(how), secs, status, said, listed, later
                )
            except (ValueError, msgspec.DecodeError):
                return None
    return None


class _Kept(NamedTuple):
    sent: int
    outcome: CallOutcome
    seconds: float
    status: int
    packed: bytes
    retry_after: float | None = None
    #: When it was asked, seconds since the epoch.
    began: float = 0.0


class _Said:
    """What was said of nodes."""

    def __init__(self) -> None:
        self.verdicts: Final[dict[str, _Verdict]] = {}
        self.scores: Final[dict[str, int]] = {}


class Cassette:
    """The calls of a recording."""

    def __init__(self) -> None:
        #: How many calls there are.
        self.calls = 0
        #: Answers that were not kept because there are too many.
        self.left_out = 0
        self._names: Final[dict[int, bytes]] = {}
        self._exact: Final[dict[tuple[str, Verb, str], list[_Kept]]] = {}
        #: Those that say something of the extender, not of a pod; by time after ``settle``.
        self._calls: Final[dict[tuple[str, Verb], list[_Kept]]] = {}
        self._about: Final[dict[tuple[str, object], _Said]] = {}
        #: What was said of each node about all pods, and of all nodes; _ANY if that differs.
        self._always: Final[dict[tuple[str, Verb], dict[str, Any]]] = {}
        self._same: Final[dict[tuple[str, Verb], Any]] = {}
        self._seconds: Final[dict[tuple[str, Verb], list[float]]] = {}
        self._specs: Final[dict[str, tuple[bytes, int]]] = {}
        self._packed = self._known = self._composed_calls = 0

    # ------------------------------------------------------------ filling

    def take(self, fields: Sequence[Any]) -> None:
        """A record; those that are about no call are left alone."""
        match fields:
            case [Op.NAMES, int(number), bytes(text)]:
                self._names[number] = text
            case [Op.CALL, *_] if (call := read_call(fields, self._names)) is not None:
                self._add(call)

    def settle(self) -> None:
        """All calls are there."""
        for calls in self._calls.values():
            calls.sort(key=_began)

    def note_pod(self, pod: SeenPod) -> None:
        """A pod of the recording."""
        labels = hash(frozenset(pod.labels.items()))
        self._specs[pod.record.uid] = pod.spec, labels

    def _add(self, call: RecordedCall) -> None:
        self.calls += 1
        seconds = self._seconds.setdefault((call.extender, call.verb), [])
        if call.outcome in _SUCCESS and len(seconds) < _MOST_SECONDS:
            seconds.append(call.seconds)
        packed = zlib.compress(call.answer, 1)
        if self._packed + len(packed) > MAX_PACKED:
            self.left_out += 1
        else:
            self._packed += len(packed)
            sent = _digest(call.names)
            fields = call.outcome, call.seconds, call.status, packed, call.retry_after
            kept = _Kept(sent, *fields, call.time - call.seconds)
            self._exact.setdefault((call.extender, call.verb, call.uid), []).append(kept)
            if call.outcome not in {CallOutcome.ERROR, CallOutcome.CANCELLED}:
                self._calls.setdefault((call.extender, call.verb), []).append(kept)
        if call.outcome is CallOutcome.SUCCESS:
            self._learn(call)

    def _learn(self, call: RecordedCall) -> None:
        try:
            said = _verdicts(call) if call.verb is Verb.FILTER else _scores(call)
        except AnswerError:
            return
        asked = call.extender, call.verb
        always = self._always.setdefault(asked, {})
        for what in set(said.values()):
            if self._same.setdefault(asked, what) != what:
                self._same[asked] = _ANY
        for name, what in said.items():
            if always.setdefault(name, what) != what:
                always[name] = _ANY
        for about in self._circles(call.uid):
            if self._known > MAX_KNOWN:
                return
            known = self._about.setdefault((call.extender, about), _Said())
            table: dict[str, Any] = known.verdicts if call.verb is Verb.FILTER else known.scores
            before = len(table)
            table.update(said)
            self._known += len(table) - before

    def _circles(self, uid: str) -> Iterator[object]:
        """Whom answers about a pod are about, too, the closest first."""
        yield uid
        spec = self._specs.get(uid)
        if spec is not None:
            yield spec
            yield spec[0]

    # ------------------------------------------------------------ asking

    def exact(self, extender: str, verb: Verb, uid: str, names: list[str] | None) -> _Kept | None:
        """The answer to the same question; of several the first that was not given yet, else the last."""
        kept = self._exact.get((extender, verb, uid), [])
        sent = _digest(names)
        same = [
            each for each in kept if each.sent == sent and each.outcome is not CallOutcome.CANCELLED
        ]
        if len(same) > 1:
            kept.remove(same[0])
        return same[0] if same else None

    def failure(self, extender: str, verb: Verb, uid: str, now: float) -> _Kept | None:
        """How a call at this time fails, if it does: as the nearest one about the pod if that was at about this time
        or was answered with an error, else as the nearest one about any pod.
        """
        own = [
            kept
            for kept in self._exact.get((extender, verb, uid), ())
            if kept.outcome is not CallOutcome.CANCELLED
        ]
        near = min(own, key=lambda kept: abs(kept.began - now), default=None)
        if near is None or (
            near.outcome is not CallOutcome.ERROR and abs(near.began - now) > _SAME_SECONDS
        ):
            near = self._nearest(extender, verb, now)
        return None if near is None or near.outcome is CallOutcome.SUCCESS else near

    def _nearest(self, extender: str, verb: Verb, now: float) -> _Kept | None:
        calls = self._calls.get((extender, verb), [])
        later = bisect.bisect(calls, now, key=_began)
        around = calls[max(0, later - 1) : later + 1]
        return min(around, key=lambda kept: abs(kept.began - now), default=None)

    def seconds(self, extender: str, verb: Verb) -> float:
        """How long a call takes: the recorded times in their order, over and over."""
        known = self._seconds.get((extender, verb))
        if not known:
            return 0.0
        self._composed_calls += 1
        return known[self._composed_calls % len(known)]

    def verdicts(
        self, extender: str, uid: str, names: Sequence[str]
    ) -> tuple[dict[str, _Verdict], int]:
        """What is said of each node, and of how many nothing is known: they are accepted."""
        return self._composed(extender, Verb.FILTER, uid, names, None)

    def scores(self, extender: str, uid: str, names: Sequence[str]) -> tuple[dict[str, int], int]:
        """The score of each node, and of how many nothing is known: 0."""
        return self._composed(extender, Verb.PRIORITIZE, uid, names, 0)

    def _composed(
        self, extender: str, verb: Verb, uid: str, names: Sequence[str], unknown: Any
    ) -> tuple[dict[str, Any], int]:
        known = [
            self._about[key] for c in self._circles(uid) if (key := (extender, c)) in self._about
        ]
        tables = [k.verdicts if verb is Verb.FILTER else k.scores for k in known]
        always = self._always.get((extender, verb), {})
        same = self._same.get((extender, verb), _ANY)
        found, missing = {}, 0
        for name in names:
            for table in tables:
                if name in table:
                    found[name] = table[name]
                    break
            else:
                what = always.get(name, same)
                missing += what is _ANY
                found[name] = unknown if what is _ANY else what
        return found, missing


def _began(kept: _Kept) -> float:
    return kept.began


def _digest(names: list[str] | None) -> int:
    return 0 if names is None else zlib.crc32(_json(names))


def _verdicts(call: RecordedCall) -> dict[str, _Verdict]:
    answer = FILTER_BY_NAME.at_once(call.answer)
    if answer.error:
        return {}
    accepted = answer.node_names if answer.node_names is not None else answer.nodes or []
    found: dict[str, _Verdict] = dict.fromkeys(call.names or (), ("", True))
    found |= {name: (reason, False) for name, reason in answer.failed.items()}
    found |= {name: (reason, True) for name, reason in answer.failed_and_unresolvable.items()}
    return found | dict.fromkeys(accepted)


def _scores(call: RecordedCall) -> dict[str, int]:
    if call.verb is not Verb.PRIORITIZE:
        return {}
    return dict(zip(*PRIORITIZE.at_once(call.answer), strict=True))


# ---------------------------------------------------------------- a transport


class _Metadata(msgspec.Struct, frozen=True):
    uid: str = ""
    name: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Metadata = _Metadata()


class _Nodes(msgspec.Struct):
    items: list[_Named] | None = None


class _Question(msgspec.Struct):
    """Any of the questions."""

    Pod: _Named = _Named()
    Nodes: _Nodes | None = None
    NodeNames: list[str] | None = None
    NodeNameToMetaVictims: dict[str, Any] | None = None
    NodeNameToVictims: dict[str, Any] | None = None
    PodName: str = ""
    PodNamespace: str = ""
    PodUID: str = ""
    Node: str = ""

    @property
    def names(self) -> list[str] | None:
        """The nodes that it is about."""
        if self.NodeNames is not None:
            return self.NodeNames
        if self.Nodes is None:
            return None
        return [node.metadata.name for node in self.Nodes.items or ()]


_QUESTION: Final = msgspec.json.Decoder(_Question)
#: Binds a pod (namespace, name, uid) to a node.
BindPod = Callable[[str, str, str, str], Awaitable[None]]


async def _no_bind(_namespace: str, _name: str, _uid: str, _node: str) -> None:
    pass


class CassetteAnswers:
    """Answers questions out of a cassette, and counts them."""

    def __init__(
        self,
        cassette: Cassette,
        *,
        bind: BindPod = _no_bind,
        now: Callable[[], float] | None = None,
    ) -> None:
        """``now``: the time of the recording; without one, only the same questions fail."""
        self._cassette: Final = cassette
        self._bind: Final = bind
        self._now: Final = now
        #: Questions by how they were answered: ``exact``, ``composed``, ``unknown``.
        self.counts: Final[Counter[str]] = Counter()

    async def answer(self, extender: str, verb: Verb, body: bytes) -> tuple[_Kept, bytes]:
        """The answer, unpacked. Raises msgspec.DecodeError for a body that is no question."""
        asked = _QUESTION.decode(body)
        uid, names = asked.PodUID or asked.Pod.metadata.uid, asked.names
        found = exact = self._cassette.exact(extender, verb, uid, names)
        if found is None and self._now is not None:
            found = self._cassette.failure(extender, verb, uid, self._now())
        if verb is Verb.BIND and (found is None or found.outcome is CallOutcome.SUCCESS):
            await self._bind(asked.PodNamespace, asked.PodName, asked.PodUID, asked.Node)
        if found is not None:
            self.counts["composed" if exact is None else "exact"] += 1
            return found, zlib.decompress(found.packed)
        text, missing = self._composed(extender, verb, uid, asked, names or [])
        self.counts["unknown" if missing else "composed"] += 1
        seconds = self._cassette.seconds(extender, verb)
        return _Kept(0, CallOutcome.SUCCESS, seconds, 200, b""), text

    def _composed(
        self, extender: str, verb: Verb, uid: str, asked: _Question, names: list[str]
    ) -> tuple[bytes, int]:
        match verb:
            case Verb.FILTER:
                verdicts, missing = self._cassette.verdicts(extender, uid, names)
                kept = [name for name in names if verdicts[name] is None]
                told = {name: v for name, v in verdicts.items() if v is not None and v[0]}
                answer: dict[str, Any] = {
                    "FailedNodes": {n: v[0] for n, v in told.items() if not v[1]},
                    "FailedAndUnresolvableNodes": {n: v[0] for n, v in told.items() if v[1]},
                }
                if asked.NodeNames is not None:
                    return _json(answer | {"NodeNames": kept}), missing
                items = [{"metadata": {"name": name}} for name in kept]
                return _json(answer | {"Nodes": {"items": items}}), missing
            case Verb.PRIORITIZE:
                scores, missing = self._cassette.scores(extender, uid, names)
                return _json([{"Host": n, "Score": s} for n, s in scores.items()]), missing
            case Verb.PREEMPT:
                return _json({"NodeNameToMetaVictims": _as_asked(asked)}), 1
            case Verb.BIND | Verb.RELEASE:
                return b'{"Error":""}', 0
        return b"{}", 1


def _as_asked(asked: _Question) -> dict[str, Any]:
    """The victims as they were proposed."""
    if asked.NodeNameToMetaVictims is not None:
        return asked.NodeNameToMetaVictims
    return {
        node: {
            "Pods": [{"UID": pod["metadata"]["uid"]} for pod in victims.get("Pods") or ()],
            "NumPDBViolations": victims.get("NumPDBViolations", 0),
        }
        for node, victims in (asked.NodeNameToVictims or {}).items()
    }


class CassetteTransport(HTTPTransport):
    """Answers an extender's client out of a cassette, after the time that the answer took."""

    def __init__(self, answers: CassetteAnswers, extender: str, urls: Mapping[str, Verb]) -> None:
        super().__init__()
        self._answers: Final = answers
        self._extender: Final = extender
        self._verbs: Final = urls

    async def post(
        self,
        url: str,
        body: Body,
        *,
        headers: Mapping[str, str],  # noqa: ARG002 - see HTTPTransport
        timeout_seconds: float,
        large: Large | None = None,  # noqa: ARG002 - answers are read in one step
    ) -> ExtenderResponse:
        """See HTTPTransport."""
        kept, text = await self._answers.answer(self._extender, self._verbs[url], bytes(body))
        if kept.seconds > timeout_seconds or kept.outcome is CallOutcome.TIMEOUT:
            await asyncio.sleep(timeout_seconds)
            raise TransportError(CallOutcome.TIMEOUT, _LOST[CallOutcome.TIMEOUT], sent=True)
        await asyncio.sleep(kept.seconds)
        if kept.outcome in _LOST:
            sent = kept.outcome is not CallOutcome.UNREACHABLE
            raise TransportError(kept.outcome, _LOST[kept.outcome], sent=sent)
        status = kept.status or (500 if kept.outcome is CallOutcome.STATUS else 200)
        later = kept.retry_after
        return ExtenderResponse(
            status, {} if later is None else {"Retry-After": f"{later:.0f}"}, text
        )
