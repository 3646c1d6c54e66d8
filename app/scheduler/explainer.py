"""Explains where a pod is and why: its history, its place in the queue, and where it would fit now.

For a pending pod, filters and scores run on the current nodes. Extenders are not called, because real ones reserve
things while they filter.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import numpy as np

from app.cycle.attempt import NO_NODES, Attempt, NoNodesError, Unfit
from app.framework.runner import Framework
from app.model.pod import Pod
from app.model.pod_groups import group_of
from app.model.status import SchedulingError
from app.observe.explain import (
    ASSUMED,
    BOUND,
    GONE,
    NOT_OURS,
    ExplainedMember,
    Explanation,
    Feasibility,
    GroupExplanation,
    Leadership,
    QueueMove,
    RankedNode,
    Waiting,
)
from app.observe.group_histories import MAX_MESSAGE, GroupHistories, waits_for
from app.observe.histories import Histories, rejections_of
from app.state.columns.arrays import Int64, Rows
from app.state.queue.queued_pod import Place, QueuedPod
from app.state.scheduler_state import SchedulerState

#: Nodes shown with their scores.
TOP: Final = 10
#: Pods of a group that are shown.
MEMBERS: Final = 50


class Explainer:
    """Answers from one scheduler's state."""

    def __init__(
        self,
        state: SchedulerState,
        frameworks: Mapping[str, Framework],
        histories: Histories,
        groups: GroupHistories,
        *,
        leadership: Callable[[], Leadership],
        rng: np.random.Generator,
        limits: Callable[[Pod], dict[str, int]] = lambda _pod: {},
        rules: str = "",
    ) -> None:
        """``limits``: of the extenders that a pod concerns, by name. ``rules``: the version whose rules hold."""
        self._rules: Final = rules
        self._state: Final = state
        self._frameworks: Final = frameworks
        self._histories: Final = histories
        self._groups: Final = groups
        self._leadership: Final = leadership
        self._rng: Final = rng
        self._limits: Final = limits

    def explain(self, namespace: str, name: str) -> Explanation | None:
        """What is known about the pod of this name; None if nothing is."""
        pod = self._state.pods.get(f"{namespace}/{name}")
        history = self._histories.of(namespace, name)
        if pod is None:
            if history is None:
                return None
            return Explanation(
                namespace,
                name,
                history.uid,
                "",
                self._leadership(),
                GONE,
                attempts=history.attempts,
                moves=_moves(history.moves),
                preempted=history.preempted,
            )
        if history is not None and history.uid != pod.uid:
            history = None
        queued = self._state.queue.get(pod.uid)
        place, node = self._place(pod, queued)
        return Explanation(
            namespace,
            name,
            pod.uid,
            pod.spec.scheduler_name,
            self._leadership(),
            place,
            node=node,
            nominated_node=pod.nominated_node_name,
            priority=pod.priority,
            waiting=None if queued is None else _waiting(queued),
            now=None if node or place == NOT_OURS else self._feasibility(pod),
            attempts=[] if history is None else history.attempts,
            moves=_moves(queued.moves if queued else history.moves if history else ()),
            preempted=None if history is None else history.preempted,
            group=self._group(pod),
            limits={} if node or place == NOT_OURS else self._limits(pod),
            rules=self._rules,
        )

    # ------------------------------------------------------------ the group

    def _group(self, pod: Pod) -> GroupExplanation | None:
        """What is known about the pod's group; None without one."""
        key = group_of(pod)
        if key is None:
            return None
        groups = self._state.cluster.pod_groups
        path = groups.path_of(key.kind)
        if not path:
            return GroupExplanation(key.name, f"PodGroup.{key.kind.GROUP}", read=False)
        group, members, cycles = groups.get(key), groups.members(key), self._groups.of(key)
        waiting = list(members.unscheduled.values())
        return GroupExplanation(
            key.name,
            f"PodGroup.{'/'.join(path.split('/')[2:4])}",
            exists=group is not None,
            min_count=None if group is None else group.min_count,
            pods=len(members),
            scheduled=len(members.scheduled),
            waits_for=waits_for(key, group, len(members), cycles[-1] if cycles else None),
            retry_at=self._retry_at(waiting),
            cycles=tuple(cycles),
            members=tuple(map(self._member, [*waiting, *members.scheduled.values()][:MEMBERS])),
        )

    def _retry_at(self, pods: Iterable[Pod]) -> float:
        """When the first of these backoffs ends; 0 without any."""
        found = (self._state.queue.get(pod.uid) for pod in pods)
        backing_off = (Place.BACKOFF, Place.ERROR_BACKOFF)
        ends = [each.backoff_expiration for each in found if each and each.place in backing_off]
        return min(ends, default=0.0)

    def _member(self, pod: Pod) -> ExplainedMember:
        queued = self._state.queue.get(pod.uid)
        place, node = self._place(pod, queued)
        if node:
            return ExplainedMember(pod.key, place, node)
        if queued is not None and queued.gating_plugin:
            message = f"{queued.gating_plugin}: {queued.gating_status.message}"
        else:
            history = self._histories.of(pod.namespace, pod.name)
            known = history is not None and history.uid == pod.uid
            attempts = history.attempts if known and history is not None else []
            message = next((each.message for each in reversed(attempts) if each.message), "")
        return ExplainedMember(pod.key, place, message=message[:MAX_MESSAGE])

    # ------------------------------------------------------------ the pod

    def _place(self, pod: Pod, queued: QueuedPod | None) -> tuple[str, str]:
        """Where the pod is, and on which node, if any."""
        if pod.node_name:
            return BOUND, pod.node_name
        assumed = self._state.cache.get(pod.uid)
        if assumed is not None:
            return ASSUMED, assumed.node_name
        if queued is not None:
            return queued.place.value, ""
        return (
            self._state.queue.where(pod.uid).value if self._state.responsible_for(pod) else NOT_OURS
        ), ""

    def _feasibility(self, pod: Pod) -> Feasibility | None:
        framework = self._frameworks.get(pod.spec.scheduler_name)
        if framework is None:
            return None
        nodes = self._state.table.node_count
        attempt = Attempt(
            framework, self._state.table, pod, nominated=self._state.nominated_for, rng=self._rng
        )
        try:
            rows = attempt.find()
            top = tuple(_best(attempt, rows))
        except Unfit as unfit:
            diagnosis = unfit.diagnosis
            return Feasibility(0, nodes, diagnosis.message(), rejections_of(diagnosis))
        except NoNodesError:
            return Feasibility(0, 0, NO_NODES)
        except SchedulingError as error:
            return Feasibility(0, nodes, str(error))
        return Feasibility(len(rows), nodes, "", rejections_of(attempt.diagnosis()), top)


def _best(attempt: Attempt, rows: Rows) -> list[RankedNode]:
    totals = attempt.rank(rows)
    by_plugin = attempt.plugin_scores(rows)
    order = np.argsort(-totals, kind="stable")[:TOP]
    names = attempt.names(rows[order])
    return [
        RankedNode(name, int(totals[at]), _at(by_plugin, at))
        for name, at in zip(names, order.tolist(), strict=True)
    ]


def _at(by_plugin: Mapping[str, Int64], position: int) -> dict[str, int]:
    return {plugin: int(scores[position]) for plugin, scores in by_plugin.items()}


def _waiting(queued: QueuedPod) -> Waiting:
    return Waiting(
        attempts=queued.attempts,
        since=queued.timestamp,
        backoff_until=queued.backoff_expiration,
        rejectors=tuple(sorted(queued.rejectors)),
        gating_plugin=queued.gating_plugin,
        gating_message=queued.gating_status.message,
    )


def _moves(moves: Iterable[tuple[float | None, str, Place]]) -> tuple[QueueMove, ...]:
    return tuple(QueueMove(at, event, place.value) for at, event, place in moves)
