"""The wire contract of the group verb of extenders, which kube-scheduler does not have (docs/extenders.md#gangs).

A request has the waiting pods of a group, those with the same candidates together, and the names of the candidates. The
answer has an entry for one or more of the pods, and each pod is in exactly one entry. Answers are decoded strictly:
keys have the documented case, and unknown keys are ignored.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from typing import Annotated, Final, TypeAlias, TypeVar

import msgspec

from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.wire.extender_v1 import (
    ONE_GO,
    AnswerError,
    AnswerReader,
    Body,
    ExtenderArgs,
    pod_json,
)
from app.wire.go_json import ListOf, StructOf, Text
from app.wire.go_json_stream import Stream

#: Bytes of an answer, and of one of its entries, at most.
MAX_ANSWER: Final = 8 * ONE_GO
MAX_ENTRY: Final = ONE_GO
#: Pods, bytes of their JSON, and names in one request at most; a larger group takes several.
MAX_PODS: Final = 1000
MAX_POD_BYTES: Final = 8 * 1024 * 1024
MAX_NAMES: Final = 100_000
#: Bytes that are decoded in one step, and what a name that was sent counts.
_ONE_STEP: Final = 64 * 1024
_PER_NAME: Final = 16

T = TypeVar("T")

_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class GroupQuestion(msgspec.Struct, frozen=True):
    """Pods of a group with the same candidates."""

    pods: list[Pod]
    #: Names of nodes, each once.
    names: list[str]


class GroupArgs(msgspec.Struct, frozen=True):
    """The arguments of one call of the group verb."""

    key: GroupKey
    #: None for a group without a minimum.
    min_count: int | None
    members: list[GroupQuestion]

    @property
    def pods(self) -> Iterator[Pod]:
        """All pods in the call."""
        return (pod for each in self.members for pod in each.pods)

    def parts(self) -> "Iterator[GroupArgs]":
        """The arguments, divided into as many calls as the limits demand."""
        part: list[GroupQuestion] = []
        pods = size = names = 0
        for each in self.members:
            first = 0
            for at, pod in enumerate(each.pods):
                length = len(pod_json(pod))
                more = len(each.names) if at == first else 0
                full = pods + 1 > MAX_PODS or size + length > MAX_POD_BYTES
                if pods and (full or names + more > MAX_NAMES):
                    if at > first:
                        part.append(GroupQuestion(each.pods[first:at], each.names))
                    yield GroupArgs(self.key, self.min_count, part)
                    part, first, more = [], at, len(each.names)
                    pods = size = names = 0
                pods, size, names = pods + 1, size + length, names + more
            part.append(GroupQuestion(each.pods[first:], each.names))
        if part:
            yield GroupArgs(self.key, self.min_count, part)

    def body(self) -> Body:
        """The request. Raises ValueError for a pod without its JSON."""
        group = {
            "Namespace": self.key.namespace,
            "Name": self.key.name,
            "MinCount": self.min_count,
        }
        pieces = [b'{"Group":%b,"Members":[' % msgspec.json.encode(group)]
        for number, each in enumerate(self.members):
            pieces.append(b',{"Pods":[' if number else b'{"Pods":[')
            for at, pod in enumerate(each.pods):
                if at:
                    pieces.append(b",")
                pieces.append(pod_json(pod))
            pieces.append(b'],"NodeNames":%b}' % msgspec.json.encode(each.names))
        pieces.append(b"]}")
        return Body(pieces)


class GroupVerdict(msgspec.Struct, frozen=True):
    """What an extender answered about some pods of a group."""

    pods: list[Pod]
    #: The names that were sent, and those of them that it accepts, in the order in which they were sent.
    sent: list[str]
    kept: list[str]
    failed: Mapping[str, str]
    failed_and_unresolvable: Mapping[str, str]
    #: The scores that it gave to nodes that were sent; one that was scored twice has the sum.
    scores: Mapping[str, int]


class GroupAnswer(msgspec.Struct, frozen=True):
    """The answer to the group verb; without verdicts if there is an error."""

    verdicts: list[GroupVerdict]
    error: str = ""
    #: Set by the client: seconds until the extender may be called again, from the header Retry-After.
    retry_after: float | None = None


class _Score(msgspec.Struct, gc=False):
    Host: str
    Score: _Int64


class _Entry(msgspec.Struct):
    PodUIDs: list[str]
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] | None = None
    FailedAndUnresolvableNodes: dict[str, str] | None = None
    Priorities: list[_Score] | None = None


class _Answer(StructOf, frozen=True):
    """The answer, with keys in their documented case only."""

    def field(self, key: str) -> str | None:
        return key if key in self.fields else None


_ENTRY: Final = msgspec.json.Decoder(_Entry)
_ENTRIES: Final = msgspec.json.Decoder(list[msgspec.Raw])


class GroupReader(AnswerReader[GroupAnswer]):
    """Decodes the answer to one call, and checks it against the request."""

    def __init__(self, args: GroupArgs) -> None:
        super().__init__(_ANSWER, _no_meaning, _no_answer, one_go=MAX_ANSWER)
        self._names: Final = [(each.names, frozenset(each.names)) for each in args.members]
        self._members: Final = {
            pod.uid: (number, pod) for number, each in enumerate(args.members) for pod in each.pods
        }

    def steps(self, body: bytes, asked: ExtenderArgs | None) -> Generator[None, None, GroupAnswer]:
        """See AnswerReader. Raises AnswerError for pods that are missing, named twice or not asked about, and unknown
        nodes."""
        del asked
        stream = Stream(_ANSWER, most=MAX_PODS)
        yield from stream.feed(body)
        answer = stream.finish() or {}
        if answer.get("Error"):
            return GroupAnswer([], answer["Error"])
        verdicts: list[GroupVerdict] = []
        missing = dict(self._members)
        done = 0
        for raw in answer.get("Answers") or ():
            if len(raw) > MAX_ENTRY:
                raise AnswerError(f"an entry of the answer has more than {MAX_ENTRY} bytes")
            done += len(raw)
            entry = _decoded(_ENTRY, raw)
            named = None if entry.NodeNames is None else frozenset(entry.NodeNames)
            scores = _summed(entry.Priorities or ())
            for number, pods in self._named(entry, missing).items():
                sent, known = self._names[number]
                verdicts.append(_verdict(entry, named, scores, pods, sent, known))
                done += _PER_NAME * len(self._names[number][0])
                if done > _ONE_STEP:
                    done = 0
                    yield
        if missing:
            _, pod = next(iter(missing.values()))
            raise AnswerError(
                f"the answer does not have pod {pod.key} ({len(missing)} are missing)"
            )
        return GroupAnswer(verdicts)

    def stream(self, asked: ExtenderArgs | None) -> Stream:
        """Raises AnswerError: an answer of this size is refused."""
        del asked
        raise AnswerError(f"the answer has more than {MAX_ANSWER} bytes")

    def _named(self, entry: _Entry, missing: dict[str, tuple[int, Pod]]) -> dict[int, list[Pod]]:
        """The pods that an entry names, by the number of their member of the request; they are missing no longer."""
        pods: dict[int, list[Pod]] = {}
        for uid in entry.PodUIDs:
            found = missing.pop(uid, None)
            if found is None:
                why = "twice" if uid in self._members else "which was not asked about"
                raise AnswerError(f"the answer names pod {uid!r:.100} {why}")
            pods.setdefault(found[0], []).append(found[1])
        return pods


def _verdict(
    entry: _Entry,
    named: frozenset[str] | None,
    scores: Mapping[str, int],
    pods: list[Pod],
    sent: list[str],
    known: frozenset[str],
) -> GroupVerdict:
    """What an entry says about pods that the names ``sent``, as a set ``known``, were sent for; ``named`` are its
    NodeNames."""
    failed = _about(sent, entry.FailedNodes)
    unresolvable = _about(sent, entry.FailedAndUnresolvableNodes)
    if named is None:
        named = known.difference(failed, unresolvable)
    elif not named <= known:
        stranger = min(named - known)
        raise AnswerError(f"the answer names node {stranger!r:.300} which was not sent")
    return GroupVerdict(
        pods,
        sent,
        sent if len(named) == len(known) else [name for name in sent if name in named],
        failed,
        unresolvable,
        _about(sent, scores),
    )


def _about(names: list[str], values: Mapping[str, T] | None) -> dict[str, T]:
    """The values for these names."""
    return {name: values[name] for name in names if name in values} if values else {}


def _summed(priorities: Iterable[_Score]) -> dict[str, int]:
    scores: dict[str, int] = {}
    for each in priorities:
        scores[each.Host] = scores.get(each.Host, 0) + each.Score
    return scores


def _decoded(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise AnswerError(f"the answer cannot be read: {error}") from error


def _raw_entries(text: bytes) -> list[msgspec.Raw]:
    return _decoded(_ENTRIES, text)


def _no_meaning(_answer: object) -> GroupAnswer:
    raise AnswerError("not used")


def _no_answer(_body: bytes, _asked: ExtenderArgs | None) -> GroupAnswer | None:
    return None


_ANSWER: Final = _Answer(
    "GroupAnswer", {"Answers": ListOf(Text(), "[]GroupEntry", _raw_entries), "Error": Text()}
)
