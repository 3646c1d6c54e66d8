"""Random histories of pods with claims: no device is ever given twice, whatever fails and however late the watch is."""

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from app.framework.interface import CycleState
from app.framework.runner import PreFilterRejected
from app.framework.testing import FakeClaims
from app.model.devices import ResourceClaim
from app.model.pod import Pod
from app.model.status import SchedulingError
from app.state.nominations import NO_PODS
from tests.core.framework.coroutines import finish
from tests.core.plugins.claim_world import Devices, a_claim, a_slice, exactly, using

NODES = {"a": ("d0", "d1"), "b": ("d0",), "c": ()}


class Failing(FakeClaims):
    """Writes of which one may fail: before it is done, or with its answer lost."""

    def __init__(self) -> None:
        super().__init__()
        self.until_fault = -1
        self.lose_answer = False

    async def patch(
        self, claim: ResourceClaim, changes: Any, *, status: bool = False
    ) -> ResourceClaim:
        self.until_fault -= 1
        if self.until_fault == 0 and not self.lose_answer:
            raise SchedulingError("refused")
        written = await super().patch(claim, changes, status=status)
        if self.until_fault == 0:
            raise SchedulingError("the answer was lost")
        return written


def devices_of(claim: ResourceClaim) -> set[str]:
    allocation = claim.status.allocation
    results = (allocation.devices.results if allocation is not None else None) or ()
    return {f"{result.pool}/{result.device}" for result in results}


class Machine(RuleBasedStateMachine):
    waiting = Bundle("waiting")
    decided = Bundle("decided")
    prepared = Bundle("prepared")

    def __init__(self) -> None:
        super().__init__()
        self.world = Devices(*(a_slice(node, *names) for node, names in NODES.items() if names))
        self.claims = Failing()
        self.world.effects.resource_claims = self.claims
        self.count = 0
        self.in_flight: dict[str, set[str]] = {}

    # ------------------------------------------------------------ pods

    @rule(
        target=waiting,
        counts=st.lists(st.integers(1, 2), min_size=1, max_size=2),
        shared=st.booleans(),
    )
    def come(self, counts: list[int], shared: bool) -> Pod:
        self.count += 1
        names = [f"c{self.count}-{n}" for n in range(len(counts))]
        for name, count in zip(names, counts, strict=True):
            made = a_claim(name, exactly(count=count))
            self.claims.store(made)
            self.world.cluster.store(made)
        if shared and self.count > 1:
            names.append("c1-0")
        return using(*names, name=f"p{self.count}")

    @rule(target=decided, pod=consumes(waiting), last=st.booleans())
    def decide(self, pod: Pod, last: bool) -> tuple[Pod, CycleState | None, str]:
        framework = self.world.cluster.framework(self.world.plugin)
        memo = framework.memo(pod)
        state = CycleState(memo.local.state)
        try:
            rows = framework.filter(state, pod, memo, NO_PODS).outcome.feasible().tolist()
        except PreFilterRejected:
            rows = []
        if not rows:
            return pod, None, ""
        node = self.world.cluster.handle.table.names[rows[-1 if last else 0]]
        before = self.world.in_use()
        assert self.world.plugin.reserve(state, pod, node).ok
        self.in_flight[pod.uid] = self.world.in_use() - before
        return pod, state, node

    @rule(
        target=prepared,
        choice=consumes(decided),
        fault=st.sampled_from([0, 1, 2, 2, 4]),
        lose=st.booleans(),
    )
    def prepare(
        self, choice: tuple[Pod, CycleState | None, str], fault: int, lose: bool
    ) -> tuple[Pod, CycleState | None, str]:
        pod, state, node = choice
        if state is None:
            return choice
        self.claims.until_fault, self.claims.lose_answer = fault, lose
        done = self.world.bind(state, pod, node).ok
        self.claims.until_fault = -1
        self.in_flight.pop(pod.uid)
        if done:
            assert all(
                pod.uid in {c.uid for c in claim.status.reserved_for or ()}
                for claim in self._claims_of(pod)
            )
            return choice
        self.world.undo(state, pod, node)
        return pod, None, ""

    @rule(target=waiting, choice=consumes(prepared), bound=st.booleans())
    def end(self, choice: tuple[Pod, CycleState | None, str], bound: bool) -> Pod:
        """A pod is bound and ends later, so that its claims are freed; or it could not be bound, and tries again."""
        pod, state, node = choice
        if state is not None and not bound:
            self.world.undo(state, pod, node)
        elif state is not None:
            for claim in self._claims_of(pod):
                left = [c for c in claim.status.reserved_for or () if c.uid != pod.uid]
                freed: dict[str, Any] = {"reservedFor": msgspec.to_builtins(left)}
                if not left:
                    freed["allocation"] = None
                self._write(claim, freed)
        return pod

    @rule(choice=consumes(decided))
    def give_up(self, choice: tuple[Pod, CycleState | None, str]) -> None:
        pod, state, node = choice
        if state is not None:
            self.world.undo(state, pod, node)
            self.in_flight.pop(pod.uid)

    # ------------------------------------------------------------ the watch

    @rule(number=st.integers(0, 50))
    def show_one(self, number: int) -> None:
        everything = list(self.claims.objects.values())
        if everything:
            self.world.cluster.store(everything[number % len(everything)])

    @rule()
    def show_all(self) -> None:
        self.world.cluster.store(*self.claims.objects.values())
        allocated = set().union(*map(devices_of, self.claims.objects.values()))
        assert self.world.in_use() == allocated | set().union(*self.in_flight.values())

    # ------------------------------------------------------------ what holds

    @invariant()
    def no_device_is_given_twice(self) -> None:
        given = [d for claim in self.claims.objects.values() for d in sorted(devices_of(claim))]
        given += [d for devices in self.in_flight.values() for d in sorted(devices)]
        assert len(given) == len(set(given))

    # ------------------------------------------------------------ helpers

    def _claims_of(self, pod: Pod) -> list[ResourceClaim]:
        names = [entry.resource_claim_name for entry in pod.spec.resource_claims or ()]
        return [self.claims.objects["default", name] for name in names if name]

    def _write(self, claim: ResourceClaim, status: dict[str, Any]) -> None:
        finish(FakeClaims.patch(self.claims, claim, {"status": status}, status=True))


TestHistories = Machine.TestCase
TestHistories.settings = settings(max_examples=40, stateful_step_count=25)
