"""Counts pods that a kubelet rejected, by reason: OutOfcpu and the like (docs/adopt.md).

Such a pod fails before it has run. The watch of pods leaves out failed ones, so the pod seems to be deleted while it is
still pending; then it is read once, in the background. What has really been deleted is not found.
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from app.kube.errors import UNREADABLE, KubeError
from app.kube.transport import Reader, path_segment
from app.model.pod import Pod
from app.observe.metrics.series import MetricFamilies
from app.runtime import logs
from app.runtime.tasks import Spawn
from app.wire.sanitize import decode

log = logging.getLogger(__name__)

#: Pods that wait to be read at most; further ones are not looked up.
MAX_WAITING: Final = 200
#: Seconds between two reads, which share the limits of clientConnection with bindings.
PAUSE: Final = 0.2
#: Different reasons that are counted; all others count as OTHER.
MAX_REASONS: Final = 50
MAX_EXAMPLES: Final = 20
OTHER: Final = "other"

_REASONS: Final = frozenset(
    {
        "AppArmor",
        "Evicted",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "NodeShutdown",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
_OUT_OF: Final = "OutOf"
_MESSAGE: Final = "Pod was rejected"
_MAX_TEXT: Final = 300


class _Meta(msgspec.Struct):
    uid: str = ""


class _Status(msgspec.Struct):
    phase: str = ""
    reason: str = ""
    message: str = ""


class _FailedPod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


_DECODER: Final = msgspec.json.Decoder(_FailedPod)


class KubeletRejections:
    """Reads pods that have gone before they ran, one at a time, and counts those that a kubelet rejected."""

    def __init__(self, reader: Reader, spawn: Spawn, *, leads: Callable[[], bool]) -> None:
        """``leads``: whether this process leads; a standby does not count."""
        self._reader: Final = reader
        self._spawn: Final = spawn
        self._leads: Final = leads
        self._waiting: Final[deque[Pod]] = deque()
        self._reading = False
        self.by_reason: Final[Counter[str]] = Counter()
        #: The latest rejections.
        self.examples: Final[deque[Mapping[str, Any]]] = deque(maxlen=MAX_EXAMPLES)

    def register(self, families: MetricFamilies) -> None:
        """Adds its figures to the metrics."""
        families.computed(
            "aiokube_scheduler_kubelet_rejections_total",
            "Pods of this scheduler that a kubelet rejected, by reason: OutOfcpu and the like.",
            lambda: {(reason,): count for reason, count in self.by_reason.items()},
            ("reason",),
            counter=True,
        )

    def describe(self) -> Mapping[str, Any]:
        """The rejections by reason, and the latest of them, for the debug page."""
        return {"byReason": dict(self.by_reason), "latest": list(self.examples)}

    def gone(self, pod: Pod) -> None:
        """A pod of this scheduler is no longer among those that run or will run."""
        if not pod.node_name or pod.terminating or pod.phase not in {"", "Pending"}:
            return
        if len(self._waiting) >= MAX_WAITING or not self._leads():
            return
        self._waiting.append(pod)
        if not self._reading:
            self._reading = True
            self._spawn(self._read_all(), "read pods that may have been rejected")

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                await self._read(self._waiting.popleft())
                await asyncio.sleep(PAUSE)
        finally:
            self._reading = False

    async def _read(self, pod: Pod) -> None:
        path = f"/api/v1/namespaces/{path_segment(pod.namespace)}/pods/{path_segment(pod.name)}"
        try:
            found = decode(_DECODER, (await self._reader.get(path)).body)
        except (KubeError, *UNREADABLE):
            return
        if found.metadata.uid == pod.uid and found.status.phase == "Failed":
            self._count(pod, found.status)

    def _count(self, pod: Pod, status: _Status) -> None:
        reason = status.reason[:_MAX_TEXT]
        known = reason in _REASONS or reason.startswith(_OUT_OF)
        if not known and not status.message.startswith(_MESSAGE):
            return
        if reason not in self.by_reason and len(self.by_reason) >= MAX_REASONS:
            self.by_reason[OTHER] += 1
        else:
            self.by_reason[reason or OTHER] += 1
        about = {
            "pod": pod.key,
            "node": pod.node_name,
            "reason": reason,
            "message": status.message[:_MAX_TEXT],
        }
        self.examples.append(about)
        logs.warning(log, "The kubelet rejected a pod", **about)
