"""NodeAffinity: spec.nodeSelector, node affinity, and the profile's added affinity.

See docs/spec/plugins/node-affinity.md.
"""

from collections.abc import Iterable
from typing import ClassVar, Final

import msgspec
import numpy as np

from app.framework.handle import Handle
from app.framework.interface import (
    CycleState,
    NodeLocal,
    PreFilterResult,
    QueueingHint,
    Verdicts,
    default_normalize,
    on_event,
    reject,
    reject_first,
)
from app.framework.optional import IgnoresOtherPods
from app.model import objects
from app.model.cluster_event import Action, Resource
from app.model.objects import Node, NodeSelectorTerm
from app.model.pod import Pod
from app.model.selectors import SelectorError
from app.model.status import SKIP, SUCCESS, Code, SchedulingError, Status, unresolvable
from app.plugins.args import NodeAffinityArgs
from app.plugins.helpers.node_selector import (
    NAME_FIELD,
    NodeSelectorMatcher,
    PreferredTerms,
    RequiredNodeAffinity,
    compile_node_selector,
    preferred_of,
    required_of,
)
from app.state.columns.arrays import Int64
from app.state.queue.hints import EventRegistration
from app.state.view import View

ERR_REASON_POD: Final = "node(s) didn't match Pod's node affinity/selector"
ERR_REASON_ENFORCED: Final = "node(s) didn't match scheduler-enforced node affinity"
ERR_REASON_CONFLICT: Final = "pod affinity terms conflict"

_FILTER_STATE: Final = "NodeAffinity/filter"
_SCORE_STATE: Final = "NodeAffinity/score"


class NodeAffinity(NodeLocal, IgnoresOtherPods):
    """Filters and scores nodes by their labels and names."""

    NAME: ClassVar[str] = "NodeAffinity"

    def __init__(self, args: NodeAffinityArgs | None, _handle: Handle) -> None:
        """Raises ValueError if the added affinity cannot be read."""
        added = _added(args or NodeAffinityArgs())
        self._required: Final = _compile_required(added)
        self._preferred: Final = _compile_preferred(added)

    # ------------------------------------------------------------ filter

    def pre_filter(self, state: CycleState, pod: Pod) -> PreFilterResult | Status:
        """Restricts the nodes to those named by the pod's terms, if every term names some."""
        required = required_of(pod.spec)
        if required is None and pod.spec.node_selector is None and self._required is None:
            return SKIP
        state.write(_FILTER_STATE, RequiredNodeAffinity.of(pod.spec))
        names = _node_names((required and required.node_selector_terms) or ())
        if names is None:
            return SUCCESS
        if not names:
            return unresolvable(ERR_REASON_CONFLICT)
        return PreFilterResult(SUCCESS, names)

    def filter(self, state: CycleState, pod: Pod, view: View) -> Verdicts | None:
        """Rejects rows that the profile's or the pod's affinity does not match. Works without PreFilter."""
        own: RequiredNodeAffinity | None = state.get(_FILTER_STATE)
        own = RequiredNodeAffinity.of(pod.spec) if own is None else own
        matched = own.matches(view)
        if self._required is not None:
            enforced = self._required.matches(view)
            return reject_first(
                (~enforced, Code.UnschedulableAndUnresolvable, ERR_REASON_ENFORCED),
                (~matched, Code.UnschedulableAndUnresolvable, ERR_REASON_POD),
            )
        if np.count_nonzero(matched) == view.n:
            return None
        return reject(~matched, Code.UnschedulableAndUnresolvable, ERR_REASON_POD)

    # ------------------------------------------------------------ score

    def pre_score(self, state: CycleState, pod: Pod, _view: View) -> Status:
        """Compiles the preferred terms; an Error if one is invalid."""
        preferred = preferred_of(pod.spec)
        if preferred is None and self._preferred is None:
            return SKIP
        try:
            own = PreferredTerms(preferred or ())
        except SelectorError as error:
            return Status(Code.Error, (str(error),))
        state.write(_SCORE_STATE, own)
        return SUCCESS

    def score(self, state: CycleState, pod: Pod, view: View) -> Int64:
        """int64[n]: the weights of the matching preferred terms of profile and pod. Works without PreScore."""
        own: PreferredTerms | None = state.get(_SCORE_STATE)
        own = self._unprepared(pod) if own is None else own
        scores = np.zeros(view.n, np.int64)
        if self._preferred is not None:
            self._preferred.add_to(scores, view)
        own.add_to(scores, view)
        return scores

    def _unprepared(self, pod: Pod) -> PreferredTerms:
        try:
            return PreferredTerms(preferred_of(pod.spec) or ())
        except SelectorError as error:
            raise SchedulingError(
                f'running Score plugins: plugin "{self.NAME}" failed with: {error}'
            ) from error

    def normalize(self, _state: CycleState, _pod: Pod, scores: Int64, _view: View) -> Int64:
        """Scales the highest sum to 100."""
        return default_normalize(scores)

    # ------------------------------------------------------------ events

    def events_to_register(self) -> Iterable[EventRegistration]:
        """Added and relabelled nodes."""
        node = Action.Add | Action.UpdateNodeLabel
        return (on_event(Resource.Node, node, self._node_came_to_match, template_only=True),)

    def _node_came_to_match(self, pod: Pod, old: Node | None, new: Node) -> bool:
        own = RequiredNodeAffinity.of(pod.spec)
        if not self._allows(own, new) or (old is not None and self._allows(own, old)):
            return QueueingHint.SKIP
        return QueueingHint.QUEUE

    def _allows(self, own: RequiredNodeAffinity, node: Node) -> bool:
        enforced = self._required is None or self._required.matches_node(node)
        return enforced and own.matches_node(node)


def _added(args: NodeAffinityArgs) -> objects.NodeAffinity:
    try:
        return msgspec.convert(args.added_affinity or {}, objects.NodeAffinity)
    except msgspec.ValidationError as error:
        raise ValueError(f"NodeAffinityArgs: addedAffinity: {error}") from error


def _compile_required(added: objects.NodeAffinity) -> NodeSelectorMatcher | None:
    if added.required is None:
        return None
    matcher = compile_node_selector(added.required)
    if matcher.errors:
        field = "requiredDuringSchedulingIgnoredDuringExecution"
        raise ValueError(f"NodeAffinityArgs: addedAffinity.{field}: {'; '.join(matcher.errors)}")
    return matcher


def _compile_preferred(added: objects.NodeAffinity) -> PreferredTerms | None:
    if not added.preferred:
        return None
    try:
        return PreferredTerms(added.preferred)
    except SelectorError as error:
        field = "preferredDuringSchedulingIgnoredDuringExecution"
        raise ValueError(f"NodeAffinityArgs: addedAffinity.{field}: {error}") from error


def _node_names(terms: Iterable[NodeSelectorTerm]) -> frozenset[str] | None:
    """The node names in the terms' ``matchFields``; None without terms, or if a term names no node."""
    union: frozenset[str] | None = None
    for term in terms:
        named = [
            frozenset(requirement.values or ())
            for requirement in term.match_fields or ()
            if requirement.key == NAME_FIELD and requirement.operator == "In"
        ]
        if not named:
            return None
        union = (union or frozenset()) | named[0].intersection(*named[1:])
    return union
