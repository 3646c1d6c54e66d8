"""The InterPodAffinity plugin."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final

import msgspec

from app.framework.classes import Trait, label_trait
from app.framework.handle import Handle
from app.framework.interface import CycleState, Need, QueueingHint, Verdicts, on_event, reject_first
from app.framework.optional import ByTraits, OnlyNarrows, SteadySkip
from app.model.cluster_event import Action, Resource
from app.model.features import Rule
from app.model.objects import Node
from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels
from app.model.status import SKIP, SUCCESS, Code, Status, unresolvable
from app.plugins.args import InterPodAffinityArgs
from app.plugins.inter_pod_affinity import scoring
from app.plugins.inter_pod_affinity.filtering import (
    ExistingAntiAffinity,
    IncomingAffinity,
    IncomingAntiAffinity,
)
from app.plugins.inter_pod_affinity.incoming import NOTHING, IncomingTerms, counted_by_key
from app.state.columns.arrays import Int64
from app.state.columns.labels import Mask
from app.state.columns.terms import AffinityTerm
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON_AFFINITY_RULES_NOT_MATCH: Final = "node(s) didn't match pod affinity rules"
ERR_REASON_ANTI_AFFINITY_RULES_NOT_MATCH: Final = "node(s) didn't match pod anti-affinity rules"
ERR_REASON_EXISTING_ANTI_AFFINITY_RULES_NOT_MATCH: Final = (
    "node(s) didn't satisfy existing pods anti-affinity rules"
)

_FILTER_STATE: Final = "InterPodAffinity/filter"
_SCORE_STATE: Final = "InterPodAffinity/score"

_POD: Final = Action.Add | Action.UpdatePodLabel | Action.Delete
_NODE: Final = Action.Add | Action.UpdateNodeLabel
_NO_LABELS: Final[Labels] = {}


class _Required(msgspec.Struct, frozen=True):
    """The required terms with the counts of PreFilter; None if the pod has no such terms."""

    affinity: IncomingAffinity | None
    anti_affinity: IncomingAntiAffinity | None
    existing: ExistingAntiAffinity


class InterPodAffinity(SteadySkip, OnlyNarrows, ByTraits):
    """Filters by required terms and scores by preferred terms, of the incoming pod and of existing pods.

    The counts are made in PreFilter and PreScore and are valid until the table changes.
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
        rules = handle.features.rules
        self._incoming = IncomingTerms(
            handle.table.terms, handle.cluster, once=Rule.NamespacesOnce in rules
        )
        #: Whether anti-affinity concerns a pod for the hints.
        self._repels = _any_selects if Rule.AnyTermWakes in rules else _all_select

    def _namespace_labels(self, pod: Pod) -> Labels:
        namespace = self._namespaces.get(pod.namespace)
        return {} if namespace is None else namespace.labels

    # ------------------------------------------------------------ filter

    def pre_filter(self, state: CycleState, pod: Pod) -> Status:
        """Counts the selected pods by domain; Skip if there are no required terms of or against the pod."""
        incoming = self._incoming.of(pod)
        if incoming.error:
            return unresolvable(f"parsing pod: {incoming.error}")
        if incoming is NOTHING and not self._table.terms:
            return SKIP
        labels = self._namespace_labels(pod)
        against = self._table.terms.matching(pod, labels).required_anti_affinity
        if not against and not incoming.affinity and not incoming.anti_affinity:
            return SKIP
        everything = View.everything(self._table)
        existing = ExistingAntiAffinity(against, pod, labels, everything)
        if not existing and not incoming.affinity and not incoming.anti_affinity:
            return SKIP
        required = _Required(
            IncomingAffinity(incoming, pod, everything) if incoming.affinity else None,
            IncomingAntiAffinity(incoming, everything) if incoming.anti_affinity else None,
            existing,
        )
        state.write(_FILTER_STATE, required)
        return SUCCESS

    def filter(self, state: CycleState, _pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows by the pod's affinity, then its anti-affinity, then the anti-affinity of existing pods."""
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

    def only_narrows(self, state: CycleState) -> bool:
        """Whether more pods never make a rejected row feasible: nothing attracts the pod to others."""
        required: _Required = state.read(_FILTER_STATE)
        return required.affinity is None

    # ------------------------------------------------------------ score

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Sums the weights of all scored terms by domain; Skip if there are none."""
        incoming = self._incoming.of(pod)
        if incoming.error:
            return Status(Code.Error, (f"failed to parse pod: {incoming.error}",))
        ignores = self._args.ignore_preferred_terms_of_existing_pods or not self._table.terms
        if ignores and not incoming.preferred:
            return SKIP
        matching = self._table.terms.matching(pod, self._namespace_labels(pod)).scoring
        if not matching and not incoming.preferred:
            return SKIP
        scores = scoring.TopologyScores(
            incoming,
            matching,
            self._args.hard_pod_affinity_weight,
            self._table,
        )
        if scores.nothing:
            return SKIP
        state.write(_SCORE_STATE, scores)
        return SUCCESS

    def skips_scoring_steadily(self, template: PodTemplate) -> bool:
        """Preferred terms may select any pod that comes, also one without terms."""
        affinity = template.spec.affinity
        ours = () if affinity is None else (affinity.pod_affinity, affinity.pod_anti_affinity)
        return not any(terms is not None and terms.preferred for terms in ours)

    def score(self, state: CycleState, _pod: Pod, view: View) -> Int64:
        """int64[n]: the sum of the weights in the row's domains, negative for anti-affinity."""
        scores: scoring.TopologyScores = state.read(_SCORE_STATE)
        return scores.of(view)

    def normalize(self, _state: CycleState, _pod: Pod, scores: Int64, _view: View) -> Int64:
        """int64[n]: scaled from 0 (lowest) to 100 (highest); 0 if all are equal."""
        return scoring.normalize(scores)

    # ------------------------------------------------------------ classes of nodes

    def traits(self, pod: Pod) -> list[Trait] | None:
        """What Filter and Score depend on; None if nodes are too different."""
        incoming = self._incoming.of(pod)
        if incoming.error:
            return None
        matching = self._table.terms.matching(pod, self._namespace_labels(pod))
        existing = (*matching.required_anti_affinity, *matching.scoring)
        if not existing and incoming is NOTHING:
            return []
        counted = counted_by_key(incoming, existing, self._table.families)
        found: list[Trait] = []
        for key, by_name in counted.items():
            some = label_trait(self._table.labels.column(key), by_name)
            if some is None:
                return None
            found += some
        return found

    # ------------------------------------------------------------ events

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Added, deleted and relabelled pods; added nodes and nodes whose labels changed."""
        return (
            on_event(Resource.Pod, _POD, self._after_pod_change),
            on_event(Resource.Node, _NODE, self._after_node_change, template_only=True),
        )

    def _after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        """Queue if a pod that the affinity terms select was added, or one was deleted that anti-affinity selects."""
        if old is not None and new is not None and new.uid == pod.uid:
            return QueueingHint.QUEUE
        if any(_waiting(other) for other in (old, new) if other is not None):
            return QueueingHint.SKIP
        terms = self._table.terms.of(pod)
        if terms.error:
            return QueueingHint.QUEUE
        affinity, anti_affinity = terms.required_affinity, terms.required_anti_affinity
        if old is not None and new is not None:
            return (_all_select(affinity, new) and not _all_select(affinity, old)) or (
                self._repels(anti_affinity, old) and not self._repels(anti_affinity, new)
            )
        if new is not None:
            return _all_select(affinity, new)
        return old is not None and (self._repels(anti_affinity, old) or self._excluded(old, pod))

    def _excluded(self, deleted: Pod, pod: Pod) -> bool:
        """Whether the anti-affinity of a deleted pod selects ``pod``, or cannot be read."""
        terms = self._table.terms.of(deleted)
        return bool(terms.error) or self._repels(terms.required_anti_affinity, pod)

    def _after_node_change(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """Queue if a node entered a domain of an affinity term, or left one of an anti-affinity term.

        Queue also if a node was added and ``pod`` has no required affinity: its domain may be free of pods that
        exclude ``pod``.
        """
        terms = self._table.terms.of(pod)
        if terms.error or (old is None and not terms.required_affinity):
            return QueueingHint.QUEUE
        return any(_entered(t.topology_key, old, new) for t in terms.required_affinity) or any(
            _left(t.topology_key, old, new) for t in terms.required_anti_affinity
        )


def _waiting(pod: Pod) -> bool:
    """Whether the pod is neither bound nor nominated to a node, and so concerns no other pod."""
    return not pod.node_name and not pod.nominated_node_name


def _all_select(terms: tuple[AffinityTerm, ...], pod: Pod) -> bool:
    """Whether there are terms and all select the pod; labels of its namespace are taken to be empty."""
    return bool(terms) and all(t.matches(pod.namespace, _NO_LABELS, pod.labels) for t in terms)


def _any_selects(terms: tuple[AffinityTerm, ...], pod: Pod) -> bool:
    """Whether any term selects the pod; labels of its namespace are taken to be empty."""
    return any(t.matches(pod.namespace, _NO_LABELS, pod.labels) for t in terms)


def _entered(key: str, old: Node | None, new: Node) -> bool:
    """Whether the node has entered a domain of the key."""
    return key in new.labels and (old is None or old.labels.get(key) != new.labels[key])


def _left(key: str, old: Node | None, new: Node) -> bool:
    """Whether the node is new, or has left a domain of the key."""
    return old is None or (key in old.labels and old.labels[key] != new.labels.get(key))
