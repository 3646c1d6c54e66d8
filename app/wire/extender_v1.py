"""The wire contract of HTTP extenders, kube-scheduler's extender/v1 (docs/spec/extenders.md#messages; KEP-1819).

Requests are written as kube-scheduler writes them: Go's field names, every field present, null for what is not used.
Pods and nodes are spliced in from the bytes they came in (app.wire.strip), never encoded again. Answers are read fast
when they are spelled like that, and through app.wire.go_json when anything about them is unusual or wrong, which also
gives errors Go's words. Of Node objects in an answer only the names are decoded.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias, TypeVar

import msgspec

from app.model.pod import Pod
from app.wire import go_json
from app.wire.go_json import GoJSONError, Int64, ListOf, MapOf, StructOf, Text

#: Gives a node's JSON as strip_for_extender leaves it, None for a node that is not known.
NodeJSON = Callable[[str], bytes | None]

AnswerError = GoJSONError

T = TypeVar("T")


class Body:
    """A request body in pieces that are shared with whoever keeps them; nobody has to join all of them."""

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
    """The pods that would be evicted from one node, most important first, and how many budgets that would break."""

    pods: tuple[Pod, ...]
    num_pdb_violations: int = 0


# ---------------------------------------------------------------- requests


class ExtenderArgs:
    """A pod and the names of the nodes that extenders are asked about, for filter and prioritize.

    A body is written once per form, however many calls it goes out with. ``names`` must not be changed afterwards.
    """

    __slots__ = ("_bodies", "_names_json", "_node_json", "distinct", "names", "pod")

    def __init__(
        self, pod: Pod, names: list[str], node_json: NodeJSON, *, distinct: bool = True
    ) -> None:
        self.pod: Final = pod
        self.names: Final = names
        #: Whether no name comes twice.
        self.distinct: Final = distinct
        self._node_json: Final = node_json
        self._bodies: Final[dict[bool, Body]] = {}
        self._names_json = b""

    def about(self, names: list[str]) -> "ExtenderArgs":
        """The same question about these nodes; this one if they are the same list."""
        if names is self.names:
            return self
        distinct = len(set(names)) == len(names)
        return ExtenderArgs(self.pod, names, self._node_json, distinct=distinct)

    @property
    def names_json(self) -> bytes:
        """The names as they are written."""
        if not self._names_json:
            self._names_json = msgspec.json.encode(self.names)
        return self._names_json

    def body(self, *, whole: bool) -> Body:
        """The request with whole nodes or with names. Raises ValueError for a pod without its JSON."""
        body = self._bodies.get(whole)
        if body is None:
            if whole:
                body = filter_request(self.pod, self.names, self._node_json)
            else:
                body = _names_request(self.pod, self.names_json)
            self._bodies[whole] = body
        return body


def filter_request(pod: Pod, names: Sequence[str], node_json: NodeJSON | None) -> Body:
    """ExtenderArgs, for filter and for prioritize.

    Whole nodes with ``node_json``, names without. A node that is not known (an extender may have added one) is written
    as kube-scheduler writes a node of which it has nothing but the name. Raises ValueError for a pod without its JSON.
    """
    if node_json is None:
        return _names_request(pod, msgspec.json.encode(names))
    nodes = [node_json(name) or _bare_node(name) for name in names]
    separated = [b","] * max(0, 2 * len(nodes) - 1)
    separated[::2] = nodes
    head = (b'{"Pod":', pod_json(pod), b',"Nodes":{"metadata":{},"items":[')
    return Body((*head, *separated, b']},"NodeNames":null}'))


def _names_request(pod: Pod, names_json: bytes) -> Body:
    return Body((b'{"Pod":', pod_json(pod), b',"Nodes":null,"NodeNames":%b}' % names_json))


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
    args = {
        "PodName": pod.name,
        "PodNamespace": pod.namespace,
        "PodUID": pod.uid,
        "Node": node_name,
    }
    return Body((msgspec.json.encode(args),))


def pod_json(pod: Pod) -> bytes:
    """The pod's own bytes. Raises ValueError when they were not kept."""
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


_NODE_INFO: Final = (
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
)
_BARE_STATUS: Final = {
    "daemonEndpoints": {"kubeletEndpoint": {"Port": 0}},
    "nodeInfo": dict.fromkeys(_NODE_INFO, ""),
}


def _bare_node(name: str) -> bytes:
    return msgspec.json.encode({"metadata": {"name": name}, "spec": {}, "status": _BARE_STATUS})


# ---------------------------------------------------------------- answers


class FilterAnswer(msgspec.Struct, frozen=True):
    """ExtenderFilterResult. The two lists are None when absent or null; ``nodes`` holds names, "" for a nameless node."""

    node_names: list[str] | None = None
    nodes: list[str] | None = None
    failed: Mapping[str, str] = {}
    failed_and_unresolvable: Mapping[str, str] = {}
    error: str = ""
    #: What the client adds. The names of the nodes that are left, in the extender's order and as it answered: a name may
    #: come twice, and one of a whole node may not have been sent. If it is what was sent, it is that very list.
    kept: list[str] = []
    #: Seconds until the extender wants to be called again, from the header Retry-After.
    retry_after: float | None = None


class MetaVictims(msgspec.Struct, frozen=True):
    """The victims on one node by UID, in the extender's order."""

    uids: tuple[str, ...]
    num_pdb_violations: int = 0


def read_filter(body: bytes, asked: ExtenderArgs | None = None) -> FilterAnswer:
    """Reads the answer to filter; ``asked``: what was asked by names. Raises AnswerError.

    If the answer repeats all names as they were written, they need not be decoded: it gets that very list.
    """
    if asked is not None:
        echo = _read_echo(body, asked)
        if echo is not None:
            return echo
    answer = _strictly(_FAST_FILTER, body)
    if answer is None:
        return _read_filter_slowly(body)
    nodes = None
    if answer.Nodes is not None:
        if answer.Nodes.items is msgspec.UNSET:
            return _read_filter_slowly(body)
        nodes = [node.metadata.name for node in answer.Nodes.items or ()]
        if "" in nodes:
            return _read_filter_slowly(body)
    return FilterAnswer(
        node_names=answer.NodeNames,
        nodes=nodes,
        failed=answer.FailedNodes or {},
        failed_and_unresolvable=answer.FailedAndUnresolvableNodes or {},
        error=answer.Error or "",
    )


def _read_echo(body: bytes, asked: ExtenderArgs) -> FilterAnswer | None:
    if len(body) < len(asked.names_json):
        return None
    answer = _strictly(_FAST_ECHO, body)
    if answer is None or bytes(answer.NodeNames) != asked.names_json:
        return None
    return FilterAnswer(
        node_names=asked.names,
        failed=answer.FailedNodes or {},
        failed_and_unresolvable=answer.FailedAndUnresolvableNodes or {},
        error=answer.Error or "",
    )


def read_prioritize(body: bytes) -> tuple[list[str], list[int]]:
    """Reads the answer to prioritize: hosts and their scores, in the extender's order. Raises AnswerError."""
    answer = _strictly(_FAST_SCORES, body)
    if answer is not None:
        return [entry.Host for entry in answer], [entry.Score for entry in answer]
    entries = [entry or {} for entry in go_json.unmarshal(body, _SCORES) or ()]
    return [entry.get("Host", "") for entry in entries], [
        entry.get("Score", 0) for entry in entries
    ]


def read_preempt(body: bytes) -> dict[str, MetaVictims]:
    """Reads the answer to preempt, by node name. Raises AnswerError, for null victims too."""
    answer = go_json.unmarshal(body, _PREEMPTION) or {}
    victims = answer.get("NodeNameToMetaVictims") or {}
    return {name: _meta_victims(name, entry) for name, entry in victims.items()}


def read_bind(body: bytes) -> str:
    """Reads the answer to bind: the error in it, empty for success. Raises AnswerError."""
    answer = go_json.unmarshal(body, _BINDING) or {}
    return str(answer.get("Error", ""))


def _meta_victims(name: str, entry: dict[str, Any] | None) -> MetaVictims:
    pods = (entry or {}).get("Pods") or ()
    if entry is None or None in pods:
        raise AnswerError(f'null among the victims on node "{name}"')
    uids = tuple(pod.get("UID", "") for pod in pods)
    return MetaVictims(uids, entry.get("NumPDBViolations", 0))


# The strict way: the keys of kube-scheduler's own types, as Go spells them or as their old tags did, and no others; else
# the answer is read again below.


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


class _Echo(msgspec.Struct, forbid_unknown_fields=True):
    NodeNames: msgspec.Raw
    Nodes: None = None
    FailedNodes: dict[str, str] | None = None
    FailedAndUnresolvableNodes: dict[str, str] | None = None
    Error: str | None = None


_Int64: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Score(msgspec.Struct, gc=False, forbid_unknown_fields=True):
    Host: str
    Score: _Int64


class _TaggedScore(_Score, gc=False, forbid_unknown_fields=True):
    Host: str = msgspec.field(name="host")
    Score: _Int64 = msgspec.field(name="score")


_FAST_FILTER: Final[Sequence[msgspec.json.Decoder[_Filter]]] = (
    msgspec.json.Decoder(_Filter),
    msgspec.json.Decoder(_TaggedFilter),
)
_FAST_ECHO: Final = (msgspec.json.Decoder(_Echo),)
_FAST_SCORES: Final[Sequence[msgspec.json.Decoder[list[_Score]]]] = (
    msgspec.json.Decoder(list[_Score]),
    msgspec.json.Decoder(list[_TaggedScore]),
)


def _strictly(decoders: Iterable[msgspec.json.Decoder[T]], body: bytes) -> T | None:
    """What the first decoder makes of it that finds nothing wrong, None if all do."""
    for decoder in decoders:
        try:
            return decoder.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
    return None


# Go's way: the types of extender/v1 as far as they are read.

_TEXT: Final = Text()
_OBJECT_META: Final = StructOf("ObjectMeta", {"name": _TEXT})
_NODE: Final = StructOf("Node", {"metadata": _OBJECT_META})
_NODE_LIST: Final = StructOf("NodeList", {"items": ListOf(_NODE, "[]v1.Node")})
_FAILED: Final = MapOf(_TEXT, "v1.FailedNodesMap")
_FILTER: Final = StructOf(
    "ExtenderFilterResult",
    {
        "Nodes": _NODE_LIST,
        "NodeNames": ListOf(_TEXT, "[]string"),
        "FailedNodes": _FAILED,
        "FailedAndUnresolvableNodes": _FAILED,
        "Error": _TEXT,
    },
)
_SCORE: Final = StructOf("HostPriority", {"Host": _TEXT, "Score": Int64()})
_SCORES: Final = ListOf(_SCORE, "v1.HostPriorityList")
_META_POD: Final = StructOf("MetaPod", {"UID": _TEXT})
_META_VICTIMS: Final = StructOf(
    "MetaVictims", {"Pods": ListOf(_META_POD, "[]*v1.MetaPod"), "NumPDBViolations": Int64()}
)
_PREEMPTION: Final = StructOf(
    "ExtenderPreemptionResult",
    {"NodeNameToMetaVictims": MapOf(_META_VICTIMS, "map[string]*v1.MetaVictims")},
)
_BINDING: Final = StructOf("ExtenderBindingResult", {"Error": _TEXT})


def _read_filter_slowly(body: bytes) -> FilterAnswer:
    answer = go_json.unmarshal(body, _FILTER) or {}
    nodes = answer.get("Nodes")
    return FilterAnswer(
        node_names=answer.get("NodeNames"),
        nodes=None if nodes is None else [_name_of(node) for node in nodes.get("items") or ()],
        failed=answer.get("FailedNodes") or {},
        failed_and_unresolvable=answer.get("FailedAndUnresolvableNodes") or {},
        error=answer.get("Error", ""),
    )


def _name_of(node: dict[str, Any] | None) -> str:
    metadata = (node or {}).get("metadata") or {}
    return str(metadata.get("name", ""))
