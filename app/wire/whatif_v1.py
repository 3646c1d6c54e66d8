"""Questions to a running scheduler, and its answers: the JSON of ``POST /whatif`` (docs/whatif.md)."""

from typing import Annotated, Any, Final, Literal

import msgspec

QuestionName = Literal["fits", "how-many", "drain", "lose", "needs"]

#: The most pods that one question may put into the cluster, and the most copies that are counted.
MAX_PODS: Final = 5_000
MAX_COPIES: Final = 1_000_000
#: The most objects of a question, and rows of an answer.
MAX_OBJECTS: Final = 1_000
MAX_ROWS: Final = 10_000
#: Seconds until an answer: by default, and at most.
SECONDS: Final = 10.0
MAX_SECONDS: Final = 50.0


class WhatIfQuestion(msgspec.Struct, rename="camel", forbid_unknown_fields=True, frozen=True):
    """What would happen? Nothing is written, whatever is asked."""

    question: QuestionName
    #: Manifests: pods, workloads whose pods are meant, and what they need (PodGroup, PersistentVolumeClaim, ...).
    objects: Annotated[list[dict[str, Any]], msgspec.Meta(max_length=MAX_OBJECTS)] = []
    #: Of ``fits``: pods of the cluster by NAMESPACE/NAME: one without a node is tried itself, of another a pod like it.
    pods: Annotated[list[str], msgspec.Meta(max_length=MAX_OBJECTS)] = []
    #: Of ``fits``: whether to look for what must change so that pods that stay pending get a node.
    changes: bool = False
    #: How many of each object, instead of its replicas.
    copies: Annotated[int, msgspec.Meta(ge=1, le=MAX_COPIES)] | None = None
    #: The namespace of objects that name none.
    namespace: str = "default"
    #: Of ``drain``: the nodes.
    nodes: Annotated[list[str], msgspec.Meta(max_length=MAX_OBJECTS)] = []
    #: Of ``lose``: all nodes with this label, KEY=VALUE, are gone.
    label: str = ""
    #: Of ``needs``: a Node manifest of the shape, or else the name of a node that has it (``like``).
    node: dict[str, Any] | None = None
    like: str = ""
    #: Whether extenders are asked as well, in their dry-run form.
    extenders: bool = False
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=MAX_SECONDS)] = SECONDS
    #: The most rows of ``pods`` in the answer.
    limit: Annotated[int, msgspec.Meta(ge=1, le=MAX_ROWS)] = 1_000


class EvictedPod(msgspec.Struct, rename="camel", frozen=True):
    """A pod that would be evicted."""

    namespace: str
    name: str
    node: str = ""
    priority: int = 0


class BudgetAnswer(msgspec.Struct, rename="camel", frozen=True):
    """A PodDisruptionBudget that stands against a drain, or an eviction."""

    namespace: str
    name: str
    #: How many of its pods would go, and how many disruptions it allows now.
    pods: int
    allowed: int


class PodChange(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """One change that helps."""

    #: request, toleration, label, uncordon, nodeSelector, nodeAffinity, hostPort, topologySpread, podAffinity,
    #: podAntiAffinity, gate, eviction.
    kind: str
    #: What to do, in words.
    text: str
    #: The node that is changed, or from which pods go; empty for a change of the pod.
    node: str = ""
    #: How: operations of a JSON Patch (RFC 6902) on the pod, or on the node.
    patch: list[dict[str, Any]] = []
    evict: list[EvictedPod] = []


class Suggestion(msgspec.Struct, rename="camel", frozen=True):
    """Changes with which the pod gets a node: they were made in an imagined cluster, and it got this one."""

    changes: list[PodChange]
    node: str
    #: The pods of lower priority that it evicts there itself.
    preempts: list[EvictedPod] = []
    #: The budgets that allow fewer disruptions than the changes make.
    budgets: list[BudgetAnswer] = []


class PodAnswer(msgspec.Struct, rename="camel", frozen=True, omit_defaults=True):
    """What would become of one pod; in the order of the decisions, those without a node last."""

    namespace: str
    name: str
    #: Its node; empty if it stays pending.
    node: str = ""
    #: Of ``drain`` and ``lose``: where it is now.
    node_before: str = msgspec.field(default="", name="from")
    #: The pods that are evicted for it first.
    preempts: list[EvictedPod] = []
    #: Why it has no node: Unschedulable, SchedulerError, Gated, Preempted, OtherScheduler, Unmanaged, NotDecided.
    reason: str = ""
    message: str = ""
    #: Of those that stay pending, if it was asked for: the smallest changes that place it, the easiest first.
    suggestions: list[Suggestion] = []
    #: Whether chance decides: another node, or other victims, were as good for this pod or one decided before it, or it
    #: matters when victims end.
    tie: bool = False


class Stop(msgspec.Struct, rename="camel", frozen=True):
    """A reason, and on how many nodes it holds."""

    reason: str
    nodes: int


class CountAnswer(msgspec.Struct, rename="camel", frozen=True):
    """Of ``how-many``: one object."""

    #: KIND NAMESPACE/NAME.
    object: str
    #: How many of its pods the cluster takes.
    count: int
    #: Whether there may be more: the limit or the time was over first.
    at_least: bool
    #: Why the next one does not fit.
    message: str
    stopped_by: list[Stop]


class NodeAnswer(msgspec.Struct, rename="camel", frozen=True):
    """A node on which pods of the question are."""

    name: str
    #: How many come, and how many go (evicted, or drained).
    pods: int
    leaving: int = 0
    #: What is requested there afterwards, in the scheduler's units: thousandths of a CPU, bytes, devices, pods.
    requested: dict[str, int] = {}


class WhatIfAnswer(msgspec.Struct, rename="camel", frozen=True):
    """The answer. What does not belong to the question is empty."""

    question: QuestionName
    #: The version of Kubernetes whose rules hold.
    rules: str
    #: When the cluster was as the answer takes it (seconds since the epoch), and how long it took.
    at: float
    seconds: float
    #: How many pods get a node and how many stay pending, all rows counted.
    placed: int = 0
    pending: int = 0
    pods: list[PodAnswer] = []
    #: Of ``how-many``: the sum; of ``needs``: the nodes, None if no number of them helps.
    count: int | None = None
    counts: list[CountAnswer] = []
    #: Of ``how-many`` and ``needs``: why there are not more, or why no node helps.
    stopped_by: list[Stop] = []
    message: str = ""
    budgets: list[BudgetAnswer] = []
    nodes: list[NodeAnswer] = []
    #: Whether rows were left out, or the time was over: then ``message`` says so.
    truncated: bool = False
    warnings: list[str] = []


class RefusedError(Exception):
    """A question that is not answered; ``status`` and ``reason`` as in a metav1.Status."""

    def __init__(self, status: int, reason: str, message: str, retry_after: int = 0) -> None:
        super().__init__(message)
        self.status: Final = status
        self.reason: Final = reason
        self.retry_after: Final = retry_after


def invalid(message: str) -> RefusedError:
    """The question can be read, but not be answered."""
    return RefusedError(422, "Invalid", message)
