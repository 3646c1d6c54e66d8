"""The plugin: affinity between pods at the extension points."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from app.framework.args import InterPodAffinityArgs
from app.framework.interface import (
    CycleState,
    EventRegistration,
    Handle,
    Need,
    Verdicts,
    reject_first,
)
from app.model.pod import Pod
from app.model.selectors import Labels
from app.model.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.plugins.inter_pod_affinity import hints, scoring
from app.plugins.inter_pod_affinity.filtering import (
    Affinity,
    AntiAffinity,
    ExistingAntiAffinity,
)
from app.plugins.inter_pod_affinity.incoming import IncomingTerms
from app.state.columns.labels import Mask
from app.state.columns.resources import Int64
from app.state.view import View

ERR_REASON_AFFINITY_RULES_NOT_MATCH: Final = "node(s) didn't match pod affinity rules"
ERR_REASON_ANTI_AFFINITY_RULES_NOT_MATCH: Final = "node(s) didn't match pod anti-affinity rules"
ERR_REASON_EXISTING_ANTI_AFFINITY_RULES_NOT_MATCH: Final = (
    "node(s) didn't satisfy existing pods anti-affinity rules"
)

_FILTER_STATE: Final = "InterPodAffinity/filter"
_SCORE_STATE: Final = "InterPodAffinity/score"


class _Required(msgspec.Struct, frozen=True):
    """What must hold, as counted by PreFilter; None where nothing is asked."""

    affinity: Affinity | None
    anti_affinity: AntiAffinity | None
    existing: ExistingAntiAffinity


class InterPodAffinity:
    """Required terms filter, preferred ones score; those of pods on nodes as well as the pod's own.

    Counts are taken in PreFilter and PreScore and hold until the table changes.
    """

    NAME: ClassVar[str] = "InterPodAffinity"
    NEEDS: ClassVar[Mapping[str, Need]] = {
        "filter": Need(
            "preFilter", 'error reading "PreFilterInterPodAffinity" from cycleState: not found'
        ),
        "score": Need(
            "preScore", 'failed to read "PreScoreInterPodAffinity" from cycleState: not found'
        ),
    }

    def __init__(self, args: InterPodAffinityArgs | None, handle: Handle) -> None:
        self._args = args or InterPodAffinityArgs()
        self._table = handle.table
        self._namespaces = handle.cluster.namespaces
        self._incoming = IncomingTerms(handle.table.terms, handle.cluster)

    def _namespace_labels(self, pod: Pod) -> Labels:
        namespace = self._namespaces.get(pod.namespace)
        return {} if namespace is None else namespace.labels

    # ------------------------------------------------------------ filter

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Counts whom the terms mean, by domain; Skip if no term concerns the pod either way."""
        incoming = self._incoming.of(pod)
        if incoming.error:
            return unresolvable(f"parsing pod: {incoming.error}")
        labels = self._namespace_labels(pod)
        against = self._table.terms.matching(pod, labels).required_anti_affinity
        if not against and not incoming.affinity and not incoming.anti_affinity:
            return SKIP
        everything = View.everything(self._table)
        existing = ExistingAntiAffinity(against, pod, labels, everything)
        if not existing and not incoming.affinity and not incoming.anti_affinity:
            return SKIP
        required = _Required(
            Affinity(incoming, pod, everything) if incoming.affinity else None,
            AntiAffinity(incoming, everything) if incoming.anti_affinity else None,
            existing,
        )
        state.write(_FILTER_STATE, required)
        return SUCCESS

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows for the pod's affinity, for its anti-affinity, then for that of pods already there."""
        required: _Required = state.read(_FILTER_STATE)
        cases: list[tuple[Mask, Code, str]] = []
        if required.affinity is not None:
            failed = required.affinity.failed(view)
            cases.append(
                (failed, Code.UnschedulableAndUnresolvable, ERR_REASON_AFFINITY_RULES_NOT_MATCH)
            )
        if required.anti_affinity is not None:
            failed = required.anti_affinity.failed(view)
            cases.append((failed, Code.Unschedulable, ERR_REASON_ANTI_AFFINITY_RULES_NOT_MATCH))
        failed = required.existing.failed(view)
        cases.append(
            (failed, Code.Unschedulable, ERR_REASON_EXISTING_ANTI_AFFINITY_RULES_NOT_MATCH)
        )
        return reject_first(*cases)

    # ------------------------------------------------------------ score

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Sums the weights of all terms that draw the pod somewhere; Skip if there are none."""
        incoming = self._incoming.of(pod)
        if incoming.error:
            return Status(Code.Error, (f"failed to parse pod: {incoming.error}",))
        if self._args.ignore_preferred_terms_of_existing_pods and not incoming.preferred:
            return SKIP
        matching = self._table.terms.matching(pod, self._namespace_labels(pod)).scoring
        if not matching and not incoming.preferred:
            return SKIP
        scores = scoring.TopologyScores(
            incoming,
            matching,
            self._args.hard_pod_affinity_weight,
            View.everything(self._table),
        )
        if scores.nothing:
            return SKIP
        state.write(_SCORE_STATE, scores)
        return SUCCESS

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64:
        """int64[n]: the weights of the terms that hold in the row's domains, anti-affinity's negative."""
        scores: scoring.TopologyScores = state.read(_SCORE_STATE)
        return scores.of(view)

    def normalize(self, _state: CycleState, _pod: Pod, scores: Int64, _view: View) -> Int64:
        """int64[n]: from 0 for the lowest to 100 for the highest; 0 everywhere if they are equal."""
        return scoring.normalize(scores)

    # ------------------------------------------------------------ events

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Pods that come, go or change labels; nodes that come or change domains."""
        return hints.registrations(self._table.terms)
