"""Plays random sequences of changes and decisions, and compares each decision with that of a state built for it."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple
from unittest import mock

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, Choice, NoNodesError, Signature, Unfit
from app.framework import classes
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.state.cache import CacheError
from app.state.columns.arrays import Rows
from app.state.scheduler_state import Change
from tests.core.scheduler.full_state import FullState
from tests.differential import objects

#: What a decision says: the totals of the feasible nodes by name, or why there is none.
Decision = Mapping[str, int] | tuple[Any, ...]


class Difference(AssertionError):  # noqa: N818 - a finding of the test, not a fault of it
    """A decision of the long-lived state that differs from that of a new one."""


class Begun(NamedTuple):
    """An attempt whose extenders are being called."""

    attempt: Attempt
    rows: Rows
    signature: Signature | None


class Sequence:
    """One random sequence. ``counts``: the comparisons that were made, by sort."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._live = FullState()
        self._serial = 0
        #: The nodes of assumed pods, by uid, in the order in which they were assumed.
        self._assumed: dict[str, str] = {}
        self._begun: list[Begun] = []
        self.counts: Counter[str] = Counter()
        #: The templates of this sequence, with labels: few, so that memos are used again.
        self._kinds = [
            (self._rng.choice(objects.TEMPLATES), self._rng.choice(objects.LABELS))
            for _ in range(self._rng.randrange(1, 5))
        ]

    def play(self) -> Counter[str]:
        """Plays the sequence. Raises Difference."""
        for name in objects.NODES[: self._rng.randrange(1, len(objects.NODES) + 1)]:
            self._live.store(objects.node(self._rng, name))
        for make in self._rng.choices(objects.OTHERS, k=self._rng.randrange(16)):
            self._live.store(make(self._rng))
        for _ in range(self._rng.randrange(4, 16)):
            for _ in range(self._rng.randrange(3)):
                self._change()
            self._decide()
        return self.counts

    # ------------------------------------------------------------ changes

    def _change(self) -> None:
        if self._rng.random() < 0.55:
            return self._rng.choice(
                (
                    self._bind,
                    self._bind,
                    self._assume,
                    self._confirm,
                    self._forget,
                    self._relabel,
                    self._terminate,
                    self._resize,
                    self._nominate,
                    self._delete_pod,
                )
            )()
        if self._rng.random() < 0.4:
            name = self._rng.choice(objects.NODES)
            if self._rng.random() < 0.2:
                return self._remove(Node, name)
            return self._live.store(objects.node(self._rng, name))
        new = self._rng.choice(objects.OTHERS)(self._rng)
        if self._rng.random() < 0.2:
            return self._remove(type(new), new.key)
        return self._live.store(new)

    def _remove(self, kind: type, key: str) -> None:
        old = self._live.objects.pop((kind, key), None)
        if old is not None:
            self._live.state.apply(Change(kind, old, None), self._live.now)

    def _pods(self, which: Callable[[Pod], bool]) -> list[Pod]:
        return [o for (kind, _), o in self._live.objects.items() if kind is Pod and which(o)]

    def _one(self, which: Callable[[Pod], bool]) -> Pod | None:
        found = self._pods(which)
        return self._rng.choice(found) if found else None

    def _new_pod(self, kind: tuple[Any, Mapping[str, str]] | None = None, **parts: Any) -> Pod:
        spec, labels = kind or self._rng.choice(self._kinds)
        self._serial += 1
        name = f"pod-{self._serial}"
        space = self._rng.choice((*objects.NAMESPACES, "default", "default"))
        spec = spec | {"priority": parts.pop("priority", 0)}
        self._live.pod(name, spec, namespace=space, labels=labels, resourceVersion="1", **parts)
        pod: Pod = self._live.objects[Pod, f"{space}/{name}"]
        return pod

    def _update(self, pod: Pod, **fields: Any) -> None:
        version = str(int(pod.resource_version or 1) + 1)
        self._live.store(msgspec.structs.replace(pod, resource_version=version, **fields))

    def _bind(self) -> None:
        """A pod of any template is bound to any node, by another scheduler."""
        kind = (self._rng.choice(objects.TEMPLATES), self._rng.choice(objects.LABELS))
        pod = self._new_pod(kind if self._rng.random() < 0.5 else None)
        self._update(pod, node_name=self._rng.choice(objects.NODES))

    def _waits(self, pod: Pod) -> bool:
        return not pod.node_name and pod.uid not in self._assumed

    def _assume(self) -> None:
        pod = self._one(self._waits)
        if pod is not None:
            node = self._rng.choice(objects.NODES)
            try:
                self._live.state.assume(pod, node)
            except CacheError:
                return
            self._assumed[pod.uid] = node

    def _confirm(self) -> None:
        pod = self._one(lambda pod: pod.uid in self._assumed)
        if pod is not None:
            self._update(pod, node_name=self._assumed.pop(pod.uid))

    def _forget(self) -> None:
        """The binding fails, and the pod returns to the queue with the nomination of its status
        (SchedulerState.fail).
        """
        pod = self._one(lambda pod: pod.uid in self._assumed)
        if pod is not None:
            counted = self._live.state.cache.get(pod.uid)
            if counted is not None:
                self._live.state.forget(counted)
            del self._assumed[pod.uid]
            self._live.state.nominator.add(self._live.state.latest(pod))

    def _relabel(self) -> None:
        pod = self._one(lambda _pod: True)
        if pod is not None:
            labels = type(pod.labels)(self._rng.choice(objects.LABELS))
            self._update(pod, labels=labels)

    def _terminate(self) -> None:
        pod = self._one(lambda pod: bool(pod.node_name))
        if pod is not None:
            self._update(pod, deletion_timestamp="2026-01-01T00:00:00Z")

    def _resize(self) -> None:
        """Another template for a pod that is on a node."""
        pod = self._one(lambda pod: bool(pod.node_name))
        other = self._one(lambda _pod: True)
        if pod is not None and other is not None:
            self._update(pod, template=other.template)

    def _nominate(self) -> None:
        parts = {"nominated": self._rng.choice(objects.NODES)}
        self._new_pod(priority=self._rng.choice([-10, 0, 10]), **parts)

    def _delete_pod(self) -> None:
        pod = self._one(lambda _pod: True)
        if pod is not None:
            self._assumed.pop(pod.uid, None)
            self._remove(Pod, pod.key)

    # ------------------------------------------------------------ decisions

    def _decide(self) -> None:
        pod = self._new_pod()
        cold = self._cold()
        expected = self._decision(_attempt(cold, pod))
        self._equal("full", pod, self._decision(_attempt(self._live, pod)), expected)
        self._at_once(pod, expected)
        for begun in self._begun:
            self._late(cold, begun)
        self._begin(pod)
        if self._rng.random() < 0.7 and isinstance(expected, dict) and pod not in self._waiting():
            self._update(pod, node_name=self._rng.choice(sorted(expected)))
        elif self._rng.random() < 0.5:
            self._remove(Pod, pod.key)

    def _waiting(self) -> Iterable[Pod]:
        return [begun.attempt.pod for begun in self._begun]

    def _cold(self) -> FullState:
        """A state built from the present objects."""
        cold = FullState()
        for each in self._live.objects.values():
            cold.store(each)
        pods = {pod.uid: pod for pod in self._pods(lambda _pod: True)}
        for uid, node in self._assumed.items():
            cold.state.assume(pods[uid], node)
        return cold

    def _decision(self, attempt: Attempt) -> Decision:
        return self._ranked(attempt, attempt.find)

    def _ranked(self, attempt: Attempt, find: Callable[[], Rows]) -> Decision:
        try:
            rows = find()
            totals = attempt.rank(rows)
        except Unfit as unfit:
            diagnosis = unfit.diagnosis
            plugins = set(diagnosis.unschedulable_plugins), set(diagnosis.pending_plugins)
            return (diagnosis.message(), *plugins)
        except (NoNodesError, SchedulingError) as error:
            return (type(error), str(error))
        return dict(zip(attempt.names(rows), totals.tolist(), strict=True))

    def _at_once(self, pod: Pod, expected: Decision) -> None:
        seed = self._rng.randrange(100)
        quick, slow = _attempt(self._live, pod, seed), _attempt(self._live, pod, seed)
        found = _chosen(quick.choose_at_once)
        if found is None:
            found = _chosen(lambda: quick.choose(quick.find()))
        elif isinstance(found, Choice):
            self.counts["chosen at once"] += 1
            rows, totals = quick.ranked or ([], [])
            names = quick.names(rows)
            ranked = dict(zip(names, totals.tolist(), strict=True))
            self._equal("ranked at once", pod, ranked, expected)
        self._equal("choice", pod, found, _chosen(lambda: slow.choose(slow.find())))
        if isinstance(found, Choice) and isinstance(expected, dict):
            best = {name for name, total in expected.items() if total == max(expected.values())}
            self._equal("best", pod, found.node_name in best, expected=True)

    def _begin(self, pod: Pod) -> None:
        """Extenders are called for the pod, or for one more."""
        attempt = _attempt(self._live, pod)
        self._begun = self._begun[-2:]
        try:
            rows = attempt.find()
            if self._rng.random() < 0.7:
                attempt.rank(rows)
        except (Unfit, NoNodesError, SchedulingError):
            return
        self._begun.append(Begun(attempt, rows, attempt.signature))

    def _late(self, cold: FullState, begun: Begun) -> None:
        """The extenders answer: the attempt, and one that shares its nodes, decide on the present table."""
        attempt, rows, signature = begun
        pod = self._live.state.latest(attempt.pod)
        expected = self._decision(_attempt(cold, pod, nominated_node=""))
        if pod.nominated_node_name or not self._live.state.is_unbound(attempt.pod):
            return  # it is not decided any more
        self.counts["late"] += 1
        self._equal("late", pod, self._fitting(attempt), expected)
        if signature is None:
            return
        replica = self._rng.random() < 0.5
        labels = pod.labels if replica else type(pod.labels)(self._rng.choice(objects.LABELS))
        other = msgspec.structs.replace(pod, labels=labels, uid="follower", name="follower")
        follower = _attempt(self._live, other)
        try:
            if not follower.has_signature(signature, rows):
                return
        except (Unfit, NoNodesError):
            return
        self.counts["followed"] += 1
        expected = self._decision(_attempt(cold, other))
        self._equal("follower", other, self._fitting(follower), expected)

    def _fitting(self, attempt: Attempt) -> Decision:
        """What a late decision says; without the message if no node is left, which ``still_fits`` does not make."""

        def find() -> Rows:
            rows = np.flatnonzero(self._live.state.table.exists)
            return rows[attempt.still_fits(rows)]

        return self._ranked(attempt, find)

    def _equal(self, what: str, pod: Pod, found: object, expected: object) -> None:
        self.counts["comparisons"] += 1
        if what in ("late", "follower") and found == {} and isinstance(expected, tuple):
            return
        if found != expected:
            raise Difference(f"{what} {pod.key} {pod.labels}: {found}, a new state: {expected}")


def _attempt(
    full: FullState, pod: Pod, seed: int = 0, nominated_node: str | None = None
) -> Attempt:
    state = full.state
    return Attempt(
        full.framework,
        state.table,
        pod,
        nominated=state.nominated_for,
        rng=np.random.default_rng(seed),
        nominated_node=nominated_node,
        latest=state.latest,
    )


def _chosen(choose: Callable[[], Choice | None]) -> object:
    """The choice, None, or the reason why there is none."""
    try:
        return choose()
    except Unfit as unfit:
        return unfit.diagnosis.message()
    except (NoNodesError, SchedulingError) as error:
        return (type(error), str(error))


def play(seed: int) -> Counter[str]:
    """The numbers of comparisons of one sequence; every other one decides by classes of nodes. Raises Difference."""
    with mock.patch.object(classes, "_CLASSES_FROM", 0 if seed % 2 else 10**9):
        return Sequence(seed).play()
