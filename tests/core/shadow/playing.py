"""A cluster in which one configuration decides, and a shadow with another one that judges the decisions."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, Unfit
from app.framework.testing import make_node, make_pod
from app.model.objects import Node, PodCondition
from app.model.pod import Pod
from app.plugins import registry
from app.runtime.tasks import at_once
from app.settings.load import load
from app.state.scheduler_state import Change
from app.tools.shadow.judge import Judge
from app.tools.shadow.timeline import Timeline
from app.tools.shadow.verdict import Verdict
from app.tools.shadow.world import ShadowWorld, make_world

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def world(text: str = "", classes: Mapping[str, type] | None = None) -> ShadowWorld:
    """The world of a configuration; ``text`` is what follows the kind."""
    classes = classes or registry.registry()
    profiles = load(HEAD + text).to_plain(registry.capabilities(classes))
    return make_world(profiles, classes, np.random.default_rng(1))


class Player:
    """``theirs`` decides at once; its outcomes reach the shadow in the order in which ``show`` is called."""

    def __init__(self, theirs: ShadowWorld, here: ShadowWorld, seed: int = 1) -> None:
        self.theirs = theirs
        self.here = here
        self.rng = np.random.default_rng(seed)
        self.timeline = Timeline(here.state, window=1.0, limit=1000)
        self.judge = Judge(self.timeline, here.profiles, self.rng)
        #: How many of the feasible nodes their scheduler looks at, other ones each time; 0 is all.
        self.looks_at = 0
        #: Whether outcomes are judged in the order of the queue, as in the process.
        self.ordering = True
        self.now = 0.0
        self.version = 0
        self.verdicts: list[Verdict] = []

    # ------------------------------------------------------------ the cluster

    def tell(self, kind: type, old: Any, new: Any) -> None:
        """Both see a change."""
        self.theirs.state.apply(Change(kind, old, new), self.now)
        self.show(kind, old, new)

    def show(self, kind: type, old: Any, new: Any) -> None:
        """The shadow sees a change."""
        self.timeline.push(Change(kind, old, new), self.now)

    def node(self, name: str, **parts: Any) -> Node:
        node = make_node(name, **parts)
        self.tell(Node, None, node)
        return node

    def pod(self, name: str, **parts: Any) -> Pod:
        """A pending pod that both see."""
        pod = self.versioned(make_pod(name, **parts))
        self.tell(Pod, None, pod)
        return pod

    def versioned(self, pod: Pod, **changes: Any) -> Pod:
        self.version += 1
        return msgspec.structs.replace(pod, resource_version=str(self.version), **changes)

    # ------------------------------------------------------------ their scheduler

    def decide(self, pod: Pod) -> Pod:
        """Their decision, which only they know: the bound pod, or the pod with a condition."""
        state = self.theirs.state
        framework = self.theirs.profiles[pod.spec.scheduler_name].framework
        attempt = Attempt(framework, state.table, pod, nominated=state.nominated_for, rng=self.rng)
        try:
            rows = attempt.find()
            if self.looks_at:
                rows = np.sort(self.rng.permutation(rows)[: self.looks_at])
            choice = attempt.choose(rows)
        except Unfit as unfit:
            result = asyncio.run(
                framework.commit.post_filter(attempt.state, pod, unfit.diagnosis, NoEffects())
            )
            said = "" if result is None or result.status.ok else result.status.message
            return self.refused(
                pod, unfit.diagnosis.message(said), (result and result.nominated_node) or ""
            )
        bound = self.versioned(pod, node_name=choice.node_name)
        state.apply(Change(Pod, pod, bound), self.now)
        return bound

    def refused(self, pod: Pod, message: str, nominated: str = "") -> Pod:
        condition = PodCondition(
            type="PodScheduled", status="False", reason="Unschedulable", message=message
        )
        changed = self.versioned(pod, conditions=(condition,), nominated_node_name=nominated)
        self.theirs.state.apply(Change(Pod, pod, changed), self.now)
        return changed

    def schedule(self, name: str, **parts: Any) -> Pod:
        """Creates a pod, lets their scheduler decide, and shows the outcome."""
        pod = self.pod(name, **parts)
        after = self.decide(pod)
        self.show(Pod, pod, after)
        self.now += 0.01
        return after

    def gone(self, pod: Pod) -> None:
        self.tell(Pod, pod, None)

    # ------------------------------------------------------------ the shadow

    def catch_up(self) -> list[Verdict]:
        """Judges all that was shown; returns the new verdicts."""
        found = []
        while self.timeline.ahead:
            if self.ordering:
                self.timeline.put_in_order()
            entry = self.timeline.ahead[0]
            if entry.outcome is not None:
                found.append(at_once(self.judge.judge(entry)))
            self.timeline.advance()
        self.verdicts += found
        return found

    def classes(self) -> Counter[str]:
        return Counter(verdict.kind for verdict in self.verdicts)


class NoEffects:
    """Effects of a scheduler without extenders whose evictions take a while."""

    def asks_about_victims(self, _pod: Pod) -> bool:
        return False

    def evict(self, eviction: Any) -> None:
        pass

    async def sleep(self, _seconds: float) -> None:
        pass
