"""Requests of schedulers and answers of extenders: the wire contract extender/v1 in Python.

A scheduler sends nodes in one of two forms, depending on its configuration of the extender: names
(``nodeCacheCapable: true``) or whole Node objects (``false``, the default). ``NodesRequest.names`` has the names in
both cases. Answers have the form of the request.

This module and its neighbours need only aiohttp and msgspec: copy the folder into your own project.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import msgspec


class Refusal(Exception):  # noqa: N818 - an answer, not a fault
    """Raised to answer with an error: unless the extender is ignorable the pod is not scheduled, and the text is
    shown.
    """


class Metadata(msgspec.Struct, frozen=True):
    """The used fields of an object's metadata."""

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
        """The spec as plain JSON; decoded on first use."""
        return _plain(self.raw_spec)

    @cached_property
    def status(self) -> dict[str, Any]:
        """The status as plain JSON; decoded on first use."""
        return _plain(self.raw_status)


def _plain(raw: msgspec.Raw) -> dict[str, Any]:
    return msgspec.json.decode(raw) or {}


class Node(_Object, frozen=True, dict=True):
    """A node."""


class Pod(_Object, frozen=True, dict=True):
    """A pod."""

    def asks_for(self, resource: str) -> bool:
        """Whether a container or an init container requests or limits this resource."""
        containers = [
            *(self.spec.get("containers") or ()),
            *(self.spec.get("initContainers") or ()),
        ]
        amounts = [container.get("resources") or {} for container in containers]
        return any(resource in (a.get(k) or ()) for a in amounts for k in ("requests", "limits"))


# ---------------------------------------------------------------- filter and prioritize


@dataclasses.dataclass(frozen=True)
class NodesRequest:
    """ExtenderArgs: a pod, and the nodes to filter or prioritize."""

    pod: Pod
    #: The names of the nodes, in the scheduler's order, in either form.
    names: Sequence[str]
    #: The nodes in the same order; None if only names were sent. See ``whole_nodes``.
    nodes: Sequence[Node] | None
    _raw_nodes: Sequence[msgspec.Raw]

    def whole_nodes(self) -> Sequence[Node]:
        """The nodes. Raises Refusal if only names were sent, which is a mistake in the scheduler's configuration."""
        if self.nodes is None:
            raise Refusal("this extender needs whole nodes: set nodeCacheCapable: false for it")
        return self.nodes

    @classmethod
    def read(cls, body: bytes) -> "NodesRequest":
        """Decodes a body. Raises msgspec.MsgspecError."""
        args = msgspec.json.decode(body, type=_Args)
        if args.Nodes is None:
            return cls(args.Pod, args.NodeNames or (), None, ())
        raws = args.Nodes.items or ()
        nodes = [msgspec.json.decode(raw, type=Node) for raw in raws]
        return cls(args.Pod, [node.name for node in nodes], nodes, raws)

    def answer(self, filtered: "Filtered") -> bytes:
        """ExtenderFilterResult, in the form of this request; nodes are returned unchanged."""
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
    """The result of filter: the feasible nodes, and reasons for the others."""

    passed: Sequence[str]
    #: Reasons by node name for nodes where preemption could help.
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: Reasons by node name for nodes where preemption could not help.
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


# ---------------------------------------------------------------- group


class GroupMembers(msgspec.Struct, frozen=True):
    """Pods of a group with the same candidates: the names of the nodes to choose from."""

    pods: Sequence[Pod] = msgspec.field(name="Pods")
    names: Sequence[str] = msgspec.field(name="NodeNames")


@dataclasses.dataclass(frozen=True)
class GroupRequest:
    """The waiting pods of a group (aiokube-scheduler only)."""

    namespace: str
    name: str
    #: How many pods are needed at least; None for a group without a minimum.
    min_count: int | None
    members: Sequence[GroupMembers]

    @property
    def pods(self) -> Sequence[Pod]:
        """All pods."""
        return [pod for each in self.members for pod in each.pods]

    @classmethod
    def read(cls, body: bytes) -> "GroupRequest":
        """Decodes a body. Raises msgspec.MsgspecError."""
        args = msgspec.json.decode(body, type=_GroupArgs)
        group = args.Group
        return cls(group.Namespace, group.Name, group.MinCount, args.Members)


@dataclasses.dataclass(frozen=True)
class GroupAnswer:
    """The answer about some pods of a group. Each pod of the request is in exactly one."""

    pods: Sequence[Pod]
    #: The feasible nodes; None for all that have no reason against them.
    passed: Sequence[str] | None = None
    #: Reasons by node name for nodes where preemption could help, and for those where it could not.
    failed: Mapping[str, str] = dataclasses.field(default_factory=dict)
    unresolvable: Mapping[str, str] = dataclasses.field(default_factory=dict)
    #: 0 to 10 by node name; 0 for the others.
    scores: Mapping[str, int] = dataclasses.field(default_factory=dict)


class _GroupName(msgspec.Struct):
    Namespace: str
    Name: str
    MinCount: int | None = None


class _GroupArgs(msgspec.Struct):
    Group: _GroupName
    Members: list[GroupMembers]


def group_answer(answers: Sequence[GroupAnswer]) -> bytes:
    """The body of the answer. Raises ValueError for a score outside 0..10."""
    return msgspec.json.encode(
        {
            "Answers": [
                {
                    "PodUIDs": [pod.metadata.uid for pod in answer.pods],
                    "NodeNames": answer.passed,
                    "FailedNodes": answer.failed,
                    "FailedAndUnresolvableNodes": answer.unresolvable,
                    "Priorities": msgspec.Raw(scores_answer(answer.scores)),
                }
                for answer in answers
            ],
            "Error": "",
        }
    )


# ---------------------------------------------------------------- bind


class BindRequest(msgspec.Struct, frozen=True, rename="pascal"):
    """ExtenderBindingArgs: the pod to bind, and its node."""

    pod_name: str
    pod_namespace: str
    pod_uid: str = msgspec.field(name="PodUID")
    node: str

    @classmethod
    def read(cls, body: bytes) -> "BindRequest":
        """Decodes a body. Raises msgspec.MsgspecError."""
        return msgspec.json.decode(body, type=cls)


class ReleaseRequest(msgspec.Struct, frozen=True, rename="pascal"):
    """Placements that the scheduler gave up, and why: the pods will not be bound to these nodes now.

    What is not reserved is not an error: the call may cross with a new one for the same pod.
    """

    placements: Sequence[BindRequest]
    reason: str = ""

    @classmethod
    def read(cls, body: bytes) -> "ReleaseRequest":
        """Decodes a body. Raises msgspec.MsgspecError."""
        return msgspec.json.decode(body, type=cls)


# ---------------------------------------------------------------- preempt


@dataclasses.dataclass(frozen=True)
class Victims:
    """The pods to be evicted from one node, the most important first."""

    uids: Sequence[str]
    num_pdb_violations: int = 0
    #: The pods, if whole objects were sent.
    pods: Sequence[Pod] = ()


@dataclasses.dataclass(frozen=True)
class PreemptRequest:
    """ExtenderPreemptionArgs: candidate nodes with the victims on each. The answer is a part of it."""

    pod: Pod
    victims: Mapping[str, Victims]

    @classmethod
    def read(cls, body: bytes) -> "PreemptRequest":
        """Decodes a body. Raises msgspec.MsgspecError."""
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
    """ExtenderPreemptionResult, which has the uids of victims in both forms."""
    entries = {
        node: {
            "Pods": [{"UID": uid} for uid in entry.uids],
            "NumPDBViolations": entry.num_pdb_violations,
        }
        for node, entry in victims.items()
    }
    return msgspec.json.encode({"NodeNameToMetaVictims": entries})


def error_answer(text: str) -> bytes:
    """An answer with only an error; filter and bind have a field for it."""
    return msgspec.json.encode({"Error": text})
