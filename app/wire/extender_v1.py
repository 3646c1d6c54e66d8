"""The wire contract of HTTP extenders, kube-scheduler's extender/v1 (docs/spec/extenders.md#messages; KEP-1819).

Requests are written as kube-scheduler writes them: Go's field names, every field present, null for what is not used.
Pods and nodes are spliced in as received (app.wire.strip), not encoded again. Responses in kube-scheduler's own
format are decoded by a fast, strict decoder; all others by app.wire.go_json, which accepts what Go accepts and has
Go's error texts. Of Node objects in a response only the names are decoded.
"""

import operator
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from typing import Annotated, Any, Final, Generic, TypeAlias, TypeVar

import msgspec

from app.model.objects import NODE_INFO_FIELDS
from app.model.pod import Pod
from app.wire import go_json
from app.wire.go_json import GoJSONError, GoType, Int64, ListOf, MapOf, StructOf, Text, Where
from app.wire.go_json_stream import Stream

#: Returns a node's JSON (see strip_for_extender), None for an unknown node.
NodeJSON = Callable[[str], bytes | None]

AnswerError = GoJSONError

T = TypeVar("T")

#: The largest response in bytes that is decoded in one step: strictly, in Go's way, and with whole nodes, which are
#: skipped.
ONE_GO: Final = 1024 * 1024
SLOWLY: Final = 16 * 1024
#: Entries of a list whose length is not known.
MOST: Final = 1_000_000


class Body:
    """A request body in pieces that are shared with their owners and never joined as a whole."""

    __slots__ = ("pieces", "size")

    def __init__(self, pieces: Sequence[bytes]) -> None:
        self.pieces: Final = pieces
        #: Bytes in all.
        self.size: Final = sum(map(len, pieces))

    def __bytes__(self) -> bytes:
        return b"".join(self.pieces)

    def batches(self, size: int) -> Iterator[Sequence[bytes]]:
        """The pieces in groups of ``size`` bytes on average, at least one piece each."""
        step = max(1, len(self.pieces) * size // max(1, self.size))
        for start in range(0, len(self.pieces), step):
            yield self.pieces[start : start + step]


class Victims(msgspec.Struct, frozen=True):
    """The pods to evict from one node, most important first, and the number of budget violations."""

    pods: tuple[Pod, ...]
    num_pdb_violations: int = 0


# ---------------------------------------------------------------- requests


class ExtenderArgs:
    """A pod and node names, the arguments of filter and prioritize.

    Each form of the body is encoded once and shared by all calls. ``names`` must not be changed afterwards.
    """

    __slots__ = ("_bodies", "_names_json", "_node_json", "distinct", "names", "pod")

    def __init__(
        self, pod: Pod, names: list[str], node_json: NodeJSON, *, distinct: bool = True
    ) -> None:
        self.pod: Final = pod
        self.names: Final = names
        #: Whether no name is repeated.
        self.distinct: Final = distinct
        self._node_json: Final = node_json
        self._bodies: Final[dict[bool, Body]] = {}
        self._names_json = b""

    def about(self, names: list[str]) -> "ExtenderArgs":
        """The arguments with these names; this object if they are the same list."""
        if names is self.names:
            return self
        distinct = len(set(names)) == len(names)
        return ExtenderArgs(self.pod, names, self._node_json, distinct=distinct)

    def of(self, pod: Pod) -> "ExtenderArgs":
        """The arguments with the same names for another pod; this object for its own."""
        if pod is self.pod:
            return self
        args = ExtenderArgs(pod, self.names, self._node_json, distinct=self.distinct)
        args._names_json = self._names_json
        return args

    @property
    def names_json(self) -> bytes:
        """The names as JSON."""
        if not self._names_json:
            self._names_json = msgspec.json.encode(self.names)
        return self._names_json

    def body(self, *, whole: bool) -> Body:
        """ExtenderArgs, with whole nodes or with names. Raises ValueError for a pod without its JSON.

        An unknown node (which an extender may have added) is written as a Node with only a name.
        """
        body = self._bodies.get(whole)
        if body is None:
            nodes = (
                self._nodes() if whole else (b',"Nodes":null,"NodeNames":', self.names_json, b"}")
            )
            body = self._bodies[whole] = Body((b'{"Pod":', pod_json(self.pod), *nodes))
        return body

    def _nodes(self) -> Sequence[bytes]:
        nodes = [self._node_json(name) or _bare_node(name) for name in self.names]
        separated = [b","] * max(0, 2 * len(nodes) - 1)
        separated[::2] = nodes
        return (b',"Nodes":{"metadata":{},"items":[', *separated, b']},"NodeNames":null}')


def preempt_request(pod: Pod, victims: Mapping[str, Victims], *, whole: bool) -> Body:
    """ExtenderPreemptionArgs: the victims as whole pods or by UID. Raises ValueError for pods without their JSON."""
    pieces = [b'{"Pod":', pod_json(pod)]
    if whole:
        pieces += (b',"NodeNameToVictims":', *_victims(victims, pod_json))
        pieces.append(b',"NodeNameToMetaVictims":null}')
    else:
        pieces += (b',"NodeNameToVictims":null,"NodeNameToMetaVictims":', *_victims(victims, _meta))
        pieces.append(b"}")
    return Body(pieces)


def bind_request(pod: Pod, node_name: str) -> Body:
    """ExtenderBindingArgs."""
    return Body((msgspec.json.encode(_binding(pod, node_name)),))


def release_request(pods: Iterable[Pod], reason: str) -> Body:
    """The placements that are given up: each pod with its ``node_name``."""
    placements = [_binding(pod, pod.node_name) for pod in pods]
    return Body((msgspec.json.encode({"Placements": placements, "Reason": reason}),))


def _binding(pod: Pod, node_name: str) -> dict[str, str]:
    return {
        "PodName": pod.name,
        "PodNamespace": pod.namespace,
        "PodUID": pod.uid,
        "Node": node_name,
    }


def pod_json(pod: Pod) -> bytes:
    """The pod's JSON as received. Raises ValueError if it was not kept."""
    if pod.raw is None:
        raise ValueError(f"the JSON of pod {pod.key} was not kept")
    return pod.raw


def _meta(pod: Pod) -> bytes:
    return b'{"UID":%b}' % msgspec.json.encode(pod.uid)


def _victims(victims: Mapping[str, Victims], encode: Callable[[Pod], bytes]) -> Iterator[bytes]:
    before = b"{"
    for name in sorted(victims):
        yield before + msgspec.json.encode(name) + b':{"Pods":['
        yield from _separated(encode(pod) for pod in victims[name].pods)
        yield b'],"NumPDBViolations":%d}' % victims[name].num_pdb_violations
        before = b","
    yield b"}" if victims else b"{}"


def _separated(pieces: Iterable[bytes]) -> Iterator[bytes]:
    for index, piece in enumerate(pieces):
        if index:
            yield b","
        yield piece


_BARE_STATUS: Final = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": dict.fromkeys(NODE_INFO_FIELDS, ""),
}


def _bare_node(name: str) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}, "spec": {}, "status": _BARE_STATUS})


# ---------------------------------------------------------------- answers


class FilterAnswer(msgspec.Struct, frozen=True):
    """ExtenderFilterResult. The two lists are None when absent or null; ``nodes`` holds names, "" for a nameless
    node."""

    node_names: list[str] | None = None
    nodes: list[str] | None = None
    failed: Mapping[str, str] = {}
    failed_and_unresolvable: Mapping[str, str] = {}
    error: str = ""
    #: Set by the client: the names of the nodes that the extender left, in its order. A name may be repeated or may
    #: not have been sent. If all names are as sent, it is the same list object.
    kept: list[str] = []
    #: Seconds until the extender may be called again, from the header Retry-After.
    retry_after: float | None = None


class MetaVictims(msgspec.Struct, frozen=True):
    """The victims on one node by UID, in the extender's order."""

    uids: tuple[str, ...]
    num_pdb_violations: int = 0


class AnswerReader(Generic[T]):
    """Decodes the responses of one verb: small ones in one step, large ones in short steps.

    ``strictly`` decodes a body in kube-scheduler's own format, None for any other; ``meaning`` converts a value of
    type ``into``. Both raise AnswerError. ``asked``: the request's arguments, None for verbs without or if unknown.
    """

    def __init__(
        self,
        into: GoType,
        meaning: Callable[[Any], T],
        strictly: Callable[[bytes, "ExtenderArgs | None"], T | None],
        *,
        one_go: int = ONE_GO,
    ) -> None:
        #: The largest body in bytes for ``steps``; a longer one must be fed to a ``stream``.
        self.one_go: Final = one_go
        self._into: Final = into
        self._meaning: Final = meaning
        self._strictly: Final = strictly

    def steps(self, body: bytes, asked: "ExtenderArgs | None") -> Generator[None, None, T]:
        """Returns the answer in steps of at most a few milliseconds. Raises AnswerError."""
        answer = self._strictly(body, asked)
        if answer is not None:
            return answer
        if len(body) <= SLOWLY:
            return self._meaning(go_json.unmarshal(body, self._into))
        stream = self.stream(asked)
        yield from stream.feed(body)
        return self.finished(stream)

    def stream(self, asked: "ExtenderArgs | None") -> Stream:
        """Decodes a body chunk by chunk."""
        return Stream(self._into, most=_entries_for(asked))

    def finished(self, stream: Stream) -> T:
        """The answer of a finished stream. Raises AnswerError."""
        return self._meaning(stream.finish())

    def at_once(self, body: bytes, asked: "ExtenderArgs | None" = None) -> T:
        """The answer in one call, however long it takes. Raises AnswerError."""
        steps = self.steps(body, asked)
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # what the generator returns


def _entries_for(asked: ExtenderArgs | None) -> int:
    """The limit for entries of a list in a response, which may repeat names or have names that were not sent."""
    return MOST if asked is None else 2 * len(asked.names) + 1000


def _check_size(asked: ExtenderArgs | None, *lists: Sized | None) -> None:
    most = _entries_for(asked)
    for each in lists:
        if each is not None and len(each) > most:
            raise AnswerError(f"the answer has more than {most} entries in one list")


def _read_echo(body: bytes, asked: ExtenderArgs | None) -> FilterAnswer | None:
    """Decodes an answer by names. If it has all names as sent, they are not decoded and the sent list is used.

    Some encoders write a space after each comma.
    """
    sent = b"" if asked is None else asked.names_json
    if asked is None or len(body) < len(sent):
        return _read_filter(body, asked)
    answer = _strictly(_FAST_ECHO, body)
    if answer is None or not _same_names(bytes(answer.NodeNames), sent, len(asked.names)):
        return _read_filter(body, asked)
    failed, unresolvable = answer.FailedNodes or {}, answer.FailedAndUnresolvableNodes or {}
    _check_size(asked, failed, unresolvable)
    return FilterAnswer(
        node_names=asked.names,
        failed=failed,
        failed_and_unresolvable=unresolvable,
        error=answer.Error or "",
    )


def _same_names(names: bytes, sent: bytes, count: int) -> bool:
    """Whether ``names`` is ``sent``, a JSON array of so many strings, perhaps with a space after each comma between
    them."""
    spaced = len(names) == len(sent) + count - 1 and sent.count(b",") == count - 1
    return (names.replace(b'", "', b'","') if spaced else names) == sent


def _read_filter(body: bytes, asked: ExtenderArgs | None) -> FilterAnswer | None:
    listed = None
    if len(body) > ONE_GO:
        large = _strictly(_FAST_LARGE, body)
        if large is None:
            return None
        listed, body = large.Nodes, large.rest()
        if len(body) > ONE_GO:
            return None
    answer = _strictly(_FAST_FILTER, body)
    if answer is None:
        return None
    nodes, listed = None, listed or answer.Nodes
    if listed is not None:
        if listed.items is msgspec.UNSET:
            return None
        nodes = [node.metadata.name for node in listed.items or ()]
        if "" in nodes:
            return None
    failed, unresolvable = answer.FailedNodes or {}, answer.FailedAndUnresolvableNodes or {}
    _check_size(asked, nodes, answer.NodeNames, failed, unresolvable)
    return FilterAnswer(answer.NodeNames, nodes, failed, unresolvable, answer.Error or "")


def _read_scores(body: bytes, asked: ExtenderArgs | None) -> tuple[list[str], list[int]] | None:
    answer = _strictly(_FAST_SCORES, body)
    if answer is None:
        return None
    _check_size(asked, answer)
    return list(map(_HOST_OF, answer)), list(map(_SCORE_OF, answer))


def _filter_meaning(answer: Any) -> FilterAnswer:
    answer = answer or {}
    nodes = answer.get("Nodes")
    return FilterAnswer(
        node_names=answer.get("NodeNames"),
        nodes=None if nodes is None else nodes.get("items") or [],
        failed=answer.get("FailedNodes") or {},
        failed_and_unresolvable=answer.get("FailedAndUnresolvableNodes") or {},
        error=answer.get("Error", ""),
    )


def _scores_meaning(answer: Any) -> tuple[list[str], list[int]]:
    entries = [entry or {} for entry in answer or ()]
    return [entry.get("Host", "") for entry in entries], [
        entry.get("Score", 0) for entry in entries
    ]


def _preempt_meaning(answer: Any) -> dict[str, MetaVictims]:
    victims = (answer or {}).get("NodeNameToMetaVictims") or {}
    return {name: _meta_victims(name, entry) for name, entry in victims.items()}


def _read_victims(body: bytes, _asked: ExtenderArgs | None) -> dict[str, MetaVictims] | None:
    answer = _strictly(_FAST_PREEMPTION, body)
    if answer is None:
        return None
    return {
        name: MetaVictims(tuple([pod.UID for pod in entry.Pods or ()]), entry.NumPDBViolations)
        for name, entry in (answer.NodeNameToMetaVictims or {}).items()
    }


def _meta_victims(name: str, entry: dict[str, Any] | None) -> MetaVictims:
    pods = (entry or {}).get("Pods") or ()
    if entry is None or None in pods:
        raise AnswerError(f'null among the victims on node "{name}"')
    uids = tuple(pod.get("UID", "") for pod in pods)
    return MetaVictims(uids, entry.get("NumPDBViolations", 0))


# Strict decoding: the keys of kube-scheduler's types, in Go's spelling or that of the old tags, and no others.


class _Meta(msgspec.Struct, gc=False):
    name: str = ""


class _Node(msgspec.Struct, gc=False):
    metadata: _Meta


class _NodeList(msgspec.Struct):
    items: list[_Node] | msgspec.UnsetType | None = msgspec.UNSET


class _Filter(msgspec.Struct, forbid_unknown_fields=True):
    Nodes: _NodeList | None = None
    NodeNames: list[str] | None = None
    FailedNodes: dict[str, str] | None = None
    FailedAndUnresolvableNodes: dict[str, str] | None = None
    Error: str | None = None


class _TaggedFilter(_Filter, forbid_unknown_fields=True):
    Nodes: _NodeList | None = msgspec.field(default=None, name="nodes")
    NodeNames: list[str] | None = msgspec.field(default=None, name="nodenames")
    FailedNodes: dict[str, str] | None = msgspec.field(default=None, name="failedNodes")
    FailedAndUnresolvableNodes: dict[str, str] | None = msgspec.field(
        default=None, name="failedAndUnresolvableNodes"
    )
    Error: str | None = msgspec.field(default=None, name="error")


class _LargeFilter(msgspec.Struct, forbid_unknown_fields=True):
    """Decodes the nodes only: the rest of a large answer with whole nodes is small."""

    Nodes: _NodeList | None = None
    NodeNames: msgspec.Raw = msgspec.Raw(b"null")
    FailedNodes: msgspec.Raw = msgspec.Raw(b"null")
    FailedAndUnresolvableNodes: msgspec.Raw = msgspec.Raw(b"null")
    Error: msgspec.Raw = msgspec.Raw(b"null")

    def rest(self) -> bytes:
        """The answer without its nodes."""
        return b'{"NodeNames":%b,"FailedNodes":%b,"FailedAndUnresolvableNodes":%b,"Error":%b}' % (
            self.NodeNames,
            self.FailedNodes,
            self.FailedAndUnresolvableNodes,
            self.Error,
        )


class _TaggedLargeFilter(_LargeFilter, forbid_unknown_fields=True):
    Nodes: _NodeList | None = msgspec.field(default=None, name="nodes")
    NodeNames: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="nodenames")
    FailedNodes: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="failedNodes")
    FailedAndUnresolvableNodes: msgspec.Raw = msgspec.field(
        default=msgspec.Raw(b"null"), name="failedAndUnresolvableNodes"
    )
    Error: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"null"), name="error")


class _Echo(msgspec.Struct, forbid_unknown_fields=True):
    NodeNames: msgspec.Raw
    Nodes: None = None
    FailedNodes: dict[str, str] | None = None
    FailedAndUnresolvableNodes: dict[str, str] | None = None
    Error: str | None = None


#: Of scores, of which there are many.
_HOST_OF: Final[Callable[[Any], str]] = operator.attrgetter("Host")
_SCORE_OF: Final[Callable[[Any], int]] = operator.attrgetter("Score")

_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Score(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    Host: str
    Score: _Int64


class _TaggedScore(_Score, gc=False, forbid_unknown_fields=True):
    Host: str = msgspec.field(name="host")
    Score: _Int64 = msgspec.field(name="score")


class _MetaPod(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    UID: str = ""


class _MetaVictims(msgspec.Struct, forbid_unknown_fields=True):
    Pods: list[_MetaPod] | None = None
    NumPDBViolations: _Int64 = 0


class _Preemption(msgspec.Struct, forbid_unknown_fields=True):
    NodeNameToMetaVictims: dict[str, _MetaVictims] | None = None


class _Binding(msgspec.Struct, forbid_unknown_fields=True):
    Error: str | None = None


_FAST_FILTER: Final[Sequence[msgspec.json.Decoder[_Filter]]] = (
    msgspec.json.Decoder(_Filter),
    msgspec.json.Decoder(_TaggedFilter),
)
_FAST_LARGE: Final[Sequence[msgspec.json.Decoder[_LargeFilter]]] = (
    msgspec.json.Decoder(_LargeFilter),
    msgspec.json.Decoder(_TaggedLargeFilter),
)
_FAST_PREEMPTION: Final = (msgspec.json.Decoder(_Preemption),)
_FAST_BINDING: Final = (msgspec.json.Decoder(_Binding),)
_FAST_NAMES: Final = (msgspec.json.Decoder(list[str]),)
_FAST_TEXTS: Final = (msgspec.json.Decoder(dict[str, str]),)
_FAST_NODES: Final = (msgspec.json.Decoder(list[_Node]),)
_FAST_ECHO: Final = (msgspec.json.Decoder(_Echo),)
_FAST_SCORES: Final[Sequence[msgspec.json.Decoder[list[_Score]]]] = (
    msgspec.json.Decoder(list[_Score]),
    msgspec.json.Decoder(list[_TaggedScore]),
)


def _strictly(decoders: Iterable[msgspec.json.Decoder[T]], body: bytes) -> T | None:
    """The result of the first decoder that succeeds, None if all fail."""
    for decoder in decoders:
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
    return None


# Decoding in Go's way: the types of extender/v1.

_TEXT: Final = Text()
_OBJECT_META: Final = StructOf("ObjectMeta", {"name": _TEXT})
_NODE: Final = StructOf("Node", {"metadata": _OBJECT_META})


class _NodeName(msgspec.Struct, frozen=True):
    """Node, reduced to its name; "" if it has none."""

    def read(self, value: Any, where: Where) -> str:
        """See GoType."""
        metadata = (_NODE.read(value, where) or {}).get("metadata") or {}
        return str(metadata.get("name", ""))


def _fast_node_names(text: bytes) -> list[str] | None:
    nodes = _strictly(_FAST_NODES, text)
    return None if nodes is None else [node.metadata.name for node in nodes]


def _fast_scores(text: bytes) -> list[dict[str, Any]] | None:
    scores = _strictly(_FAST_SCORES, text)
    return None if scores is None else [{"Host": s.Host, "Score": s.Score} for s in scores]


_NODE_LIST: Final = StructOf(
    "NodeList", {"items": ListOf(_NodeName(), "[]v1.Node", _fast_node_names)}
)
_FAILED: Final = MapOf(_TEXT, "v1.FailedNodesMap", partial(_strictly, _FAST_TEXTS))
_FILTER: Final = StructOf(
    "ExtenderFilterResult",
    {
        "Nodes": _NODE_LIST,
        "NodeNames": ListOf(_TEXT, "[]string", partial(_strictly, _FAST_NAMES)),
        "FailedNodes": _FAILED,
        "FailedAndUnresolvableNodes": _FAILED,
        "Error": _TEXT,
    },
)
_SCORE: Final = StructOf("HostPriority", {"Host": _TEXT, "Score": Int64()})
_SCORES: Final = ListOf(_SCORE, "v1.HostPriorityList", _fast_scores)
_META_POD: Final = StructOf("MetaPod", {"UID": _TEXT})
_META_VICTIMS: Final = StructOf(
    "MetaVictims", {"Pods": ListOf(_META_POD, "[]*v1.MetaPod"), "NumPDBViolations": Int64()}
)
_PREEMPTION: Final = StructOf(
    "ExtenderPreemptionResult",
    {"NodeNameToMetaVictims": MapOf(_META_VICTIMS, "map[string]*v1.MetaVictims")},
)
_BINDING: Final = StructOf("ExtenderBindingResult", {"Error": _TEXT})


def _read_error(body: bytes, _asked: ExtenderArgs | None) -> str | None:
    answer = _strictly(_FAST_BINDING, body)
    return None if answer is None else answer.Error or ""


#: One reader per verb; filter has another one for whole nodes.
FILTER_BY_NAME: Final = AnswerReader(_FILTER, _filter_meaning, _read_echo)
FILTER_WHOLE: Final = AnswerReader(_FILTER, _filter_meaning, _read_filter, one_go=4 * ONE_GO)
#: Hosts and their scores, in the extender's order.
PRIORITIZE: Final = AnswerReader(_SCORES, _scores_meaning, _read_scores)
#: Victims by node name; null ones are an error.
PREEMPT: Final = AnswerReader(_PREEMPTION, _preempt_meaning, _read_victims)
#: The error, empty for success.
BIND: Final[AnswerReader[str]] = AnswerReader(
    _BINDING, lambda answer: str((answer or {}).get("Error", "")), _read_error
)

# Convenience functions that decode in one call.
read_filter: Final = FILTER_BY_NAME.at_once
read_prioritize: Final = PRIORITIZE.at_once
read_preempt: Final = PREEMPT.at_once
read_bind: Final = BIND.at_once
