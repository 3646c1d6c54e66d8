"""The cycle of one pod: decides, assumes and commits, without I/O (docs/architecture.md, "The cycle").

``take`` and ``schedule`` tell it from top to bottom. Whoever runs them, the loop of a scheduler or a simulation,
supplies what comes from outside as arguments and as answers to requests: ``schedule`` is a generator that yields what
it waits for. A pod without extenders waits for nothing but long searches for devices, so ``finish`` runs its cycle to
the end at once.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from app.cycle.attempt import NO_NODES, Attempt, Choice, NoNodesError, Unfit
from app.framework.diagnosis import Diagnosis
from app.framework.interface import CycleState
from app.framework.runner import Framework
from app.model.pod import Pod
from app.model.status import (
    SUCCESS,
    Code,
    SchedulingError,
    Status,
    Unfinished,
    unresolvable,
)
from app.state.cache import CacheError
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import SchedulerState

T = TypeVar("T")

_NO_WAITS: Final[Mapping[str, float]] = {}
#: The codes of Reserve and Permit with which a binding cycle begins.
_ACCEPTED: Final = (Code.Success, Code.Wait)


class Pause(msgspec.Struct, frozen=True):
    """A long step has not finished: others may run now. The answer: whether it may pause once more (bool)."""

    #: Whether the step pauses for the first time.
    first: bool


#: What a cycle waits for. Each request says what it is sent as the answer.
Request = Any
#: A cycle, or a part of it, which returns T.
Steps = Generator[Request, Any, T]


class AssumedPod(msgspec.Struct, frozen=True):
    """A pod that is assumed on its chosen node: ``pod`` has the node name set, ``started`` is monotonic."""

    queued: QueuedPod
    pod: Pod
    choice: Choice
    framework: Framework
    cycle_state: CycleState
    started: float
    #: SchedulerState.arrivals of the node when it was chosen.
    arrivals: int = 0


class Placed(msgspec.Struct, frozen=True):
    """The pod counts on its node, which is reserved: its binding cycle begins."""

    assumed: AssumedPod
    #: How long each Permit plugin delays the pod, in seconds.
    waits: Mapping[str, float] = _NO_WAITS


class Preempt(msgspec.Struct, frozen=True):
    """No node is feasible: PostFilter may make room, then the pod is requeued."""

    diagnosis: Diagnosis


class Rejected(msgspec.Struct, frozen=True):
    """The pod is requeued: there is no node, a step failed (Code.Error), or Reserve or Permit has rejected its node."""

    status: Status
    #: The pod on its node, if it has to be taken back from there.
    assumed: AssumedPod | None = None
    #: An exception that no step should raise, to be logged.
    fault: Exception | None = None


class Gone(msgspec.Struct, frozen=True):
    """The pod needs no node any longer, and is dropped."""

    #: The pod on the node that was chosen for it.
    pod: Pod


Outcome = Placed | Preempt | Rejected | Gone


def take(
    state: SchedulerState,
    frameworks: Mapping[str, Framework],
    queued: QueuedPod,
    rng: np.random.Generator,
) -> Attempt | None:
    """Step 1: an attempt for a popped pod.

    None if the pod must not be tried, because it is being deleted or already assumed; it is dropped then.
    """
    pod = queued.pod
    framework = frameworks.get(pod.template.spec.scheduler_name)
    if framework is None or pod.terminating or state.cache.is_assumed(pod.uid):
        state.drop(pod)
        return None
    return Attempt(
        framework,
        state.table,
        pod,
        nominated=state.nominated_for,
        rng=rng,
        nominated_node=state.nominator.node_of(pod.uid),
        latest=state.latest,
    )


def schedule(
    state: SchedulerState,
    queued: QueuedPod,
    attempt: Attempt,
    *,
    started: float,
    chosen: Callable[[Choice], None],
    extenders: Callable[[Attempt], Steps[Choice]] | None = None,
) -> Steps[Outcome]:
    """Steps 2 to 9 of the cycle of a pod that was taken at ``started`` (monotonic). Between two requests nothing else
    runs.

    ``chosen`` is called with the node before anything changes. ``extenders`` chooses a node together with them: it
    sends the best nodes of steps 2 to 4, and takes these steps once more on the table as it is when the last answer has
    come.
    """
    try:
        if extenders is not None:
            choice = yield from extenders(attempt)
        else:
            choice = yield from decide(attempt)
    except Unfit as unfit:
        # 5. PostFilter: nothing fits.
        return Preempt(unfit.diagnosis)
    except NoNodesError:
        return Rejected(unresolvable(NO_NODES))
    except SchedulingError as error:
        return Rejected(Status(Code.Error, (str(error),)))
    except Exception as error:  # noqa: BLE001 - logged by the caller
        return Rejected(failed(error), fault=error)
    chosen(choice)
    # 6. The pod as it is now must still need a node.
    pod, node = attempt.pod, choice.node_name
    queued.pod = pod
    if not state.needs_node(pod):
        state.drop(pod)
        return Gone(pod.on(node))
    # 7. Assume: from now on the pod counts on its node.
    try:
        assumed = assume(state, queued, attempt, choice, started)
    except CacheError as error:
        return Rejected(Status(Code.Error, (str(error),)))
    # 8. Reserve, and 9. Permit.
    status, waits, fault = _reserve_and_permit(assumed)
    if status.code in _ACCEPTED:
        return Placed(assumed, waits)
    return Rejected(status, assumed, fault)


def decide(attempt: Attempt) -> Steps[Choice]:
    """Steps 2 to 4 for a pod without extenders. Raises Unfit, NoNodesError, SchedulingError."""
    # 2. to 4. at once, if what is kept for the pod's template suffices.
    choice = attempt.choose_at_once()
    if choice is None:
        # 2. PreFilter, and 3. Filter over all nodes.
        rows = yield from paused(attempt, attempt.find)
        # 4. Score over the feasible nodes; the best one is chosen, of equals any.
        choice = attempt.choose(rows)
    return choice


def assume(
    state: SchedulerState, queued: QueuedPod, attempt: Attempt, choice: Choice, started: float
) -> AssumedPod:
    """Counts the pod on its node. Raises CacheError."""
    node = choice.node_name
    pod = state.assume(attempt.pod, node)
    return AssumedPod(
        queued, pod, choice, attempt.framework, attempt.state, started, state.arrivals(node)
    )


def permit(assumed: AssumedPod) -> tuple[Status, Mapping[str, float], Exception | None]:
    """The result of Permit, as Framework.permit; an exception of a plugin becomes an Error, and is returned."""
    framework, pod = assumed.framework, assumed.pod
    if not framework.commit.has_permit:
        return SUCCESS, _NO_WAITS, None
    try:
        return *framework.commit.permit(assumed.cycle_state, pod, pod.node_name), None
    except Exception as error:  # noqa: BLE001 - logged by the caller
        return failed(error), _NO_WAITS, error


def _reserve_and_permit(
    assumed: AssumedPod,
) -> tuple[Status, Mapping[str, float], Exception | None]:
    pod = assumed.pod
    try:
        status = assumed.framework.commit.reserve(assumed.cycle_state, pod, pod.node_name)
    except Exception as error:  # noqa: BLE001 - logged by the caller
        return failed(error), _NO_WAITS, error
    return permit(assumed) if status.code is Code.Success else (status, _NO_WAITS, None)


def failed(error: Exception) -> Status:
    """The status for an exception that no step should raise."""
    return Status(Code.Error, (f"{type(error).__name__}: {error}",))


def paused(attempt: Attempt, step: Callable[[], T]) -> Steps[T]:
    """The result of ``step``, a method of the attempt, which is repeated as long as it has not finished.

    There is no pause after the last call: the result is that of the table as it is. Raises what ``step`` raises.
    """
    attempt.may_pause = first = True
    while True:
        try:
            return step()
        except Unfinished:
            attempt.may_pause = yield Pause(first)
            first = False


def finish(steps: Steps[T]) -> T:
    """The result of steps that wait for nothing but pauses, which are not made."""
    try:
        next(steps)
        while True:
            steps.send(False)
    except StopIteration as end:
        result: T = end.value
        return result
