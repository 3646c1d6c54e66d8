"""Queueing hints: which cluster events may make which pods schedulable (docs/spec/cluster-events.md#matching).

A plugin registers the events that may make pods schedulable which it rejected, each with a hint: a function of a
rejected pod and the changed object that returns whether to try the pod again. Calling hints is the expensive part. So
the registrations that match an event are computed once, and pods whose rejecting plugins have no matching
registration are not examined.
"""

import enum
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Final

import msgspec

from app.model.cluster_event import Action, ClusterEvent, Resource
from app.model.pod import Pod, PodTemplate
from app.state.queue.queued_pod import QueuedPod
from app.state.queue.recorder import HintFunction, QueueRecorder

#: ``narrow(template, old, new)``: the uids of the pods of a template for which a hint may return Queue; None for all.
NarrowFunction = Callable[[PodTemplate, Any, Any], Collection[str] | None]


class QueueingStrategy(enum.IntEnum):
    """How to queue a pod again; of several the highest counts (kube-scheduler's queueingStrategy)."""

    SKIP = 0
    AFTER_BACKOFF = 1
    IMMEDIATELY = 2


SKIP: Final = QueueingStrategy.SKIP
AFTER_BACKOFF: Final = QueueingStrategy.AFTER_BACKOFF
IMMEDIATELY: Final = QueueingStrategy.IMMEDIATELY


class EventRegistration(msgspec.Struct, frozen=True):
    """An event that may make pods schedulable that the plugin rejected; without a hint every such event does."""

    event: ClusterEvent
    hint: HintFunction | None = None
    #: Whether the hint depends on the pod's template only; it is then called once per group of waiting pods.
    template_only: bool = False
    #: Limits the pods for which the hint is called.
    narrow: NarrowFunction | None = None
    #: The plugin's name, which the profile sets.
    plugin: str = ""

    @property
    def asked_once(self) -> bool:
        """Whether the result is the same for all pods of a template."""
        return self.hint is None or self.template_only


def with_taint_registrations(
    registrations: Iterable[EventRegistration],
) -> tuple[EventRegistration, ...]:
    """Adds a registration for taint changes to plugins that registered added nodes but not taint changes.

    The plugin may never have seen a node that was tainted when it was added, so its pods are moved by any taint
    change (docs/spec/cluster-events.md#extra-registration-for-taints).
    """
    given = tuple(registrations)
    taint = ClusterEvent(Resource.Node, Action.UpdateNodeTaint)
    actions: dict[str, Action] = {}
    for registration in given:
        if registration.event.resource is Resource.Node:
            actions.setdefault(registration.plugin, Action(0))
            actions[registration.plugin] |= registration.event.action
    return given + tuple(
        EventRegistration(taint, plugin=plugin)
        for plugin, action in actions.items()
        if action & Action.Add and not action & Action.UpdateNodeTaint
    )


class EventInterest(msgspec.Struct, frozen=True):
    """An event and the registrations that match it."""

    event: ClusterEvent
    label: str
    wildcard: bool
    #: profile -> plugin -> its registrations that match the event.
    registrations: Mapping[str, Mapping[str, tuple[EventRegistration, ...]]]
    #: Every (profile, plugin) with such a registration.
    wakers: tuple[tuple[str, str], ...]
    #: Every plugin with such a registration, in any profile.
    plugins: tuple[str, ...]

    @property
    def is_unregistered(self) -> bool:
        """Whether no plugin registered for the event."""
        return not self.wildcard and not self.plugins


class Hints:
    """The registrations of all profiles."""

    def __init__(
        self,
        registrations: Mapping[str, Sequence[EventRegistration]],
        recorder: QueueRecorder,
        *,
        own_events: bool = False,
    ) -> None:
        """``registrations`` by scheduler name. ``own_events``: see QueuePlugins."""
        self._registrations: Final = registrations
        self._recorder: Final = recorder
        self._own_events: Final = own_events
        self._interests: Final[dict[ClusterEvent, EventInterest]] = {}
        #: Of events of the waiting pod itself, if these have names of their own.
        self._own_interests: Final = {} if own_events else self._interests

    def knows(self, profile: str) -> bool:
        """Whether there are registrations for this scheduler name; if not, any event moves a pod."""
        return profile in self._registrations

    def label(self, event: ClusterEvent, *, own: bool = False) -> str:
        """The name of an event in metrics; ``own``: of the waiting pod that it may move."""
        if event.resource is not Resource.UnschedulablePod or not self._own_events:
            return event.label
        return event.label.replace("UnschedulablePod", "TargetPod" if own else "UnscheduledPod")

    def interest(self, event: ClusterEvent, *, own: bool = False) -> EventInterest:
        """The event with its matching registrations; ``own``: of the waiting pod that it may move."""
        known = self._own_interests if own else self._interests
        interest = known.get(event)
        if interest is None:
            interest = known[event] = self._match(event, self.label(event, own=own))
        return interest

    def worth_requeuing(
        self, queued: QueuedPod, interest: EventInterest, old: object | None, new: object | None
    ) -> QueueingStrategy:
        """How to queue a waiting pod after an event; SKIP if the event does not help it."""
        rejectors = queued.rejectors
        profile = queued.pod.spec.scheduler_name
        if not rejectors:
            return AFTER_BACKOFF
        if interest.wildcard:
            return AFTER_BACKOFF if new is None or is_same_pod(new, queued.pod) else SKIP
        if not self.knows(profile):
            return AFTER_BACKOFF
        return self.ask(self.matching(interest, profile, rejectors), queued, old, new)

    def matching(
        self, interest: EventInterest, profile: str, rejectors: AbstractSet[str]
    ) -> list[EventRegistration]:
        """The matching registrations of a pod's rejectors; the profile must be known."""
        return [
            registration
            for plugin, registrations in interest.registrations[profile].items()
            if plugin in rejectors
            for registration in registrations
        ]

    def ask(
        self,
        registrations: Iterable[EventRegistration],
        queued: QueuedPod,
        old: object | None,
        new: object | None,
        floor: QueueingStrategy = SKIP,
    ) -> QueueingStrategy:
        """The highest of ``floor`` and the hints' results; stops at the highest possible one."""
        pending = queued.pending_plugins
        strategy = floor
        for registration in registrations:
            if strategy is IMMEDIATELY or (strategy is AFTER_BACKOFF and not pending):
                break
            if self._welcomes(registration, queued.pod, old, new):
                strategy = IMMEDIATELY if registration.plugin in pending else AFTER_BACKOFF
        return strategy

    def _welcomes(
        self, registration: EventRegistration, pod: Pod, old: object | None, new: object | None
    ) -> bool:
        if registration.hint is None:
            return True
        try:
            return registration.hint(pod, old, new)
        except Exception as error:  # noqa: BLE001 - an exception of a plugin must not leave the pod waiting
            self._recorder.plugin_failed(registration.plugin, "QueueingHint", pod, error)
            return True

    def _match(self, event: ClusterEvent, label: str) -> EventInterest:
        by_profile: dict[str, dict[str, tuple[EventRegistration, ...]]] = {}
        for profile, registrations in self._registrations.items():
            matching = by_profile[profile] = {}
            for registration in registrations:
                if registration.event.matches(event):
                    known = matching.get(registration.plugin, ())
                    matching[registration.plugin] = (*known, self._timed(registration, label))
        wakers = [(profile, plugin) for profile in by_profile for plugin in by_profile[profile]]
        plugins = dict.fromkeys(plugin for _, plugin in wakers)
        return EventInterest(
            event=event,
            label=label,
            wildcard=event.wildcard,
            registrations=by_profile,
            wakers=tuple(wakers),
            plugins=tuple(plugins),
        )

    def _timed(self, registration: EventRegistration, label: str) -> EventRegistration:
        if registration.hint is None:
            return registration
        hint = self._recorder.timed_hint(registration.plugin, label, registration.hint)
        return msgspec.structs.replace(registration, hint=hint)


def narrowed(
    registrations: Iterable[EventRegistration],
    template: PodTemplate,
    old: object | None,
    new: object | None,
) -> Collection[str] | None:
    """The uids of the pods of a template for which any of these hints may return Queue, in their order; None for
    all.
    """
    uids: dict[str, None] = {}
    for registration in registrations:
        try:
            few = registration.narrow and registration.narrow(template, old, new)
        except Exception:  # noqa: BLE001 - an exception of a plugin must not leave the pods waiting
            return None
        if few is None:
            return None
        uids.update(dict.fromkeys(few))
    return uids.keys()


def is_same_pod(candidate: object, pod: Pod) -> bool:
    """Whether an object is a version of this pod."""
    return isinstance(candidate, Pod) and candidate.uid == pod.uid
