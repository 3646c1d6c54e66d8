"""Which changes may help a pod that affinity between pods rejected.

See docs/spec/plugins/inter-pod-affinity.md#events.
"""

from collections.abc import Callable, Iterable
from typing import Final

from app.framework.interface import EventRegistration, QueueingHint
from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.objects import Node
from app.model.pod import Pod
from app.model.selectors import Labels
from app.state.columns.terms import AffinityTerm, Terms

_POD: Final = ClusterEvent(Resource.Pod, Action.Add | Action.UpdatePodLabel | Action.Delete)
_NODE: Final = ClusterEvent(Resource.Node, Action.Add | Action.UpdateNodeLabel)
_NO_LABELS: Final[Labels] = {}


def registrations(terms: Terms) -> Iterable[EventRegistration]:
    """The events, with hints that know the pods' terms."""
    hints = _Hints(terms)
    return (
        EventRegistration(_POD, hints.after_pod_change),
        EventRegistration(_NODE, hints.after_node_change, template_only=True),
    )


class _Hints:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms

    def after_pod_change(self, pod: Pod, old: Pod | None, new: Pod | None) -> bool:
        """Whether a neighbour came that ``pod`` wants, or one went that it shuns or that shuns it."""
        if old is not None and new is not None and new.uid == pod.uid:
            return QueueingHint.QUEUE
        if any(_waiting(other) for other in (old, new) if other is not None):
            return QueueingHint.SKIP
        terms = self._terms.of(pod)
        if terms.error:
            return QueueingHint.QUEUE
        wanted, shunned = terms.required_affinity, terms.required_anti_affinity
        if old is not None and new is not None:
            return (_all_mean(wanted, new) and not _all_mean(wanted, old)) or (
                _all_mean(shunned, old) and not _all_mean(shunned, new)
            )
        if new is not None:
            return _all_mean(wanted, new)
        return old is not None and (_all_mean(shunned, old) or self._shuns(old, pod))

    def _shuns(self, gone: Pod, pod: Pod) -> bool:
        terms = self._terms.of(gone)
        return bool(terms.error) or _all_mean(terms.required_anti_affinity, pod)

    def after_node_change(self, pod: Pod, old: Node | None, new: Node) -> bool:
        """Whether a node came into a domain that ``pod`` may want, or left one that it may shun.

        A new node may be in a domain without pods that shun ``pod``.
        """
        terms = self._terms.of(pod)
        if terms.error or (old is None and not terms.required_affinity):
            return QueueingHint.QUEUE
        wanted = _any_key(terms.required_affinity, lambda k: _entered(k, old, new))
        return wanted or _any_key(terms.required_anti_affinity, lambda k: _left(k, old, new))


def _waiting(pod: Pod) -> bool:
    """Whether the pod is neither on a node nor nominated to one, so that it concerns no other pod."""
    return not pod.node_name and not pod.nominated_node_name


def _all_mean(terms: tuple[AffinityTerm, ...], pod: Pod) -> bool:
    """Whether there are terms and all mean the pod, as far as its namespace's name tells."""
    return bool(terms) and all(t.matches(pod.namespace, _NO_LABELS, pod.labels) for t in terms)


def _any_key(terms: tuple[AffinityTerm, ...], changed: Callable[[str], bool]) -> bool:
    return any(changed(term.topology_key) for term in terms)


def _entered(key: str, old: Node | None, new: Node) -> bool:
    """Whether the node has come into a domain of the key."""
    if old is None:
        return key in new.labels
    return key in new.labels and old.labels.get(key) != new.labels[key]


def _left(key: str, old: Node | None, new: Node) -> bool:
    """Whether the node is new, or has left a domain of the key."""
    return old is None or (key in old.labels and old.labels[key] != new.labels.get(key))
