"""What a scheduler asks an extender, and what it is answered: the wire contract extender/v1 in Python's terms.

A scheduler sends nodes in one of two forms, by what its configuration says of the extender: names (``nodeCacheCapable: true``) or
whole Node objects (``false``, the default). ``NodesRequest.names`` is there in both. Answers are written in the form that was
asked in.

This module and its neighbours need nothing but aiohttp and msgspec: copy the folder into your own project.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """Raise it to answer with an error: the pod is not scheduled, unless the extender is ignorable, and the text is shown."""


class Metadata(msgspec.Struct, frozen=True):
    """What is read of an object's metadata."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}


class _Object(msgspec.Struct, frozen=True, dict=True):
    metadata: Metadata
    raw_spec: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="spec")
    raw_status: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="status")

    @property
    def name(self) -> str:
        """The object's name."""
        return self.metadata.name

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The spec as plain JSON; decoded when first asked for."""
        return _plain(self.raw_spec)

    @cached_property
    def status(self) -> dict[str, Any]:
        """The status as plain JSON; decoded when first asked for."""
        return _plain(self.raw_status)


def _plain(raw: msgspec.Raw) -> dict[str, Any]:
    return msgspec.json.decode(raw) or {}


class Node(_Object, frozen=True, dict=True):
    """A node."""


class Pod(_Object, frozen=True, dict=True):
    """A pod."""

    def asks_for(self, resource: str) -> bool:
        """Whether a container, or an init container, requests this resource or is limited in it."""
        containers = [
            *(self.spec.get("containers") or ()),
            *(self.spec.get("initContainers") or ()),
        ]
        amounts = [container.get("resources") or {} for container in containers]
        return any(resource in (a.get(k) or ()) for a in amounts for k in ("requests", "limits"))


# ---------------------------------------------------------------- filter and prioritize


@dataclasses.dataclass(frozen=True)
class NodesRequest:
    """ExtenderArgs: a pod, and the nodes that filter or prioritize is about."""

    pod: Pod
    #: The names of the nodes, in the scheduler's order, in either form.
    names: Sequence[str]
    #: The nodes in the same order; None when only names were sent. See ``whole_nodes``.
    nodes: Sequence[Node] | None
    _raw_nodes: Sequence[msgspec.Raw]

    def whole_nodes(self) -> Sequence[Node]:
        """The nodes. Raises Refusal when only names were sent, which is a mistake in the scheduler's configuration."""
        if self.nodes is None:
            raise Refusal("this extender needs whole nodes: set nodeCacheCapable: false for it")
        return self.nodes

    @classmethod
    def read(cls, body: bytes) -> "NodesRequest":
        """Raises msgspec.MsgspecError for a body that is no ExtenderArgs."""
        args = msgspec.json.decode(body, type=_Args)
        if args.Nodes is None:
            return cls(args.Pod, args.NodeNames or (), None, ())
        raws = args.Nodes.items or ()
        nodes = [msgspec.json.decode(raw, type=Node) for raw in raws]
        return cls(args.Pod, [node.name for node in nodes], nodes, raws)

    def answer(self, filtered: "Filtered") -> bytes:
        """ExtenderFilterResult, in the form of this request: nodes go back exactly as they came."""
        known = set(self.names)
        strangers = [name for name in filtered.passed if name not in known]
        if strangers:
            raise ValueError(f"node {strangers[0]!r} passed the filter but was not asked about")
        passed = set(filtered.passed)
        nodes = None
        if self.nodes is not None:
            pairs = zip(self.names, self._raw_nodes, strict=True)
            nodes = {"metadata": {}, "items": [raw for name, raw in pairs if name in passed]}
        return msgspec.json.encode(
            {
                "Nodes": nodes,
                "NodeNames": None if nodes else [name for name in self.names if name in passed],
                "FailedNodes": filtered.failed,
                "FailedAndUnresolvableNodes": filtered.unresolvable,
                "Error": "",
            }
        )


@dataclasses.dataclass(frozen=True)
class Filtered:
    """What filter comes to: the nodes that will do, and why the others will not."""

    passed: Sequence[str]
    #: Reasons by node name where evicting other pods could help.
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Reasons by node name where it could not.
    unresolvable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Seconds after which a pod that was rejected should be tried again (aiokube-scheduler only).
    retry_after: int | None = None


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Args(msgspec.Struct):
    Pod: Pod
    Nodes: _NodeList | None = None
    NodeNames: list[str] | None = None


def scores_answer(scores: Mapping[str, int]) -> bytes:
    """HostPriorityList. Raises ValueError for a score outside 0..10, which is the convention."""
    for name, score in scores.items():
        if not 0 <= score <= 10:
            raise ValueError(f"the score of node {name!r} is {score}; extenders give 0 to 10")
    return msgspec.json.encode([{"Host": n, "Score": s} for n, s in scores.items()])


# ---------------------------------------------------------------- bind


class BindRequest(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderBindingArgs: the extender is to bind this pod to this node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str

    @classmethod
    def read(cls, body: bytes) -> "BindRequest":
        """Raises msgspec.MsgspecError."""
        return msgspec.json.decode(body, type=cls)


# ---------------------------------------------------------------- preempt


@dataclasses.dataclass(frozen=True)
class Victims:
    """The pods to be evicted from one node, the most important first."""

    uids: Sequence[str]
    num_pdb_violations: int = 0
    #: The pods themselves, when whole objects were sent.
    pods: Sequence[Pod] = ()


@dataclasses.dataclass(frozen=True)
class PreemptRequest:
    """ExtenderPreemptionArgs: where a pod could go, by the victims that would make room. The answer is a part of it."""

    pod: Pod
    victims: Mapping[str, Victims]

    @classmethod
    def read(cls, body: bytes) -> "PreemptRequest":
        """Raises msgspec.MsgspecError."""
        args = msgspec.json.decode(body, type=_PreemptionArgs)
        whole = {
            node: Victims(
                [pod.metadata.uid for pod in entry.Pods or ()],
                entry.NumPDBViolations,
                entry.Pods or (),
            )
            for node, entry in (args.NodeNameToVictims or {}).items()
        }
        by_uid = {
            node: Victims([pod.UID for pod in entry.Pods or ()], entry.NumPDBViolations)
            for node, entry in (args.NodeNameToMetaVictims or {}).items()
        }
        return cls(args.Pod, whole or by_uid)


class _VictimPods(msgspec.Struct):
    Pods: list[Pod] | None = None
    NumPDBViolations: int = 0


class _MetaPod(msgspec.Struct):
    UID: str = ""


class _MetaVictims(msgspec.Struct):
    Pods: list[_MetaPod] | None = None
    NumPDBViolations: int = 0


class _PreemptionArgs(msgspec.Struct):
    Pod: Pod
    NodeNameToVictims: dict[str, _VictimPods] | None = None
    NodeNameToMetaVictims: dict[str, _MetaVictims] | None = None


def preempt_answer(victims: Mapping[str, Victims]) -> bytes:
    """ExtenderPreemptionResult, which names victims by uid whatever the request had."""
    entries = {
        node: {
            "Pods": [{"UID": uid} for uid in entry.uids],
            "NumPDBViolations": entry.num_pdb_violations,
        }
        for node, entry in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": entries})


def error_answer(text: str) -> bytes:
    """An answer that says only what went wrong; filter and bind have a place for it."""
    return msgspec.json.encode({"Error": text})
