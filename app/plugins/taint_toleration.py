"""TaintToleration: rejects nodes with taints that the pod does not tolerate (docs/spec/plugins/taint-toleration.md)."""

import functools
from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

from app.framework.handle import Handle
from app.framework.interface import (
    MAX_NODE_SCORE,
    CycleState,
    Need,
    NoArguments,
    NodeLocal,
    QueueingHint,
    Verdicts,
    default_normalize,
    on_event,
    own_update,
    reject,
)
from app.framework.optional import IgnoresOtherPods, ZeroNormalized
from app.model.cluster_event import Action, Resource
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import SUCCESS, Code, Status
from app.plugins.helpers.tolerations import (
    PREFER_NO_SCHEDULE,
    TaintTable,
    find_untolerated,
)
from app.state.columns.arrays import Int64
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON: Final = "node(s) had untolerated taint(s)"

_FILTER_STATE: Final = "TaintToleration/filter"
_SCORE_STATE: Final = "TaintToleration/score"
_KNOWN_TABLES: Final = 16


class TaintToleration(NoArguments, NodeLocal, IgnoresOtherPods, ZeroNormalized):
    """NoSchedule and NoExecute taints reject a node, PreferNoSchedule taints lower its score."""

    NAME: ClassVar[str] = "TaintToleration"
    ZERO_NORMALIZED: ClassVar[int] = MAX_NODE_SCORE
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "score": Need(
            "preScore", 'failed to read "PreScoreTaintToleration" from cycleState: not found'
        ),
    }

    def __init__(self, args: object, handle: Handle) -> None:
        super().__init__(args, handle)
        #: Most templates have the same tolerations.
        self._table: Final = functools.lru_cache(_KNOWN_TABLES)(TaintTable)

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows with a taint that the pod does not tolerate."""
        table: TaintTable | None = state.get(_FILTER_STATE)
        if table is None:
            table = self._table(pod.spec.tolerations or ())
            state.write(_FILTER_STATE, table)
        failed = table.nonzero(view)
        if failed is None:
            return None
        return reject(failed, Code.UnschedulableAndUnresolvable, ERR_REASON)

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Never skips."""
        table = self._table(pod.spec.tolerations or (), (PREFER_NO_SCHEDULE,))
        state.write(_SCORE_STATE, table)
        return SUCCESS

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64 | None:
        """int64[n]: the number of PreferNoSchedule taints that are not tolerated; ``normalize`` reverses it."""
        table: TaintTable = state.read(_SCORE_STATE)
        return table.rows(view)

    def normalize(self, _state: CycleState, _pod: Pod, scores: Int64, _view: View) -> Int64:
        """Scales the highest number to 0 and no taints to 100."""
        return default_normalize(scores, reverse=True)

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Added nodes and changed taints, and new tolerations of the pod."""
        node = Action.Add | Action.UpdateNodeTaint
        return (
            on_event(Resource.Node, node, _became_tolerable, template_only=True),
            on_event(Resource.Pod, Action.UpdatePodToleration, own_update),
        )


def _became_tolerable(pod: Pod, old: Node | None, new: Node) -> bool:
    tolerations = pod.spec.tolerations or ()
    was_tolerated = old is not None and find_untolerated(old.spec.taints or (), tolerations) is None
    if was_tolerated or find_untolerated(new.spec.taints or (), tolerations) is not None:
        return QueueingHint.SKIP
    return QueueingHint.QUEUE
