"""Answers questions, one after another, on an imagined cluster (app.scheduler.whatif.world)."""

import asyncio
import contextlib
import logging
import math
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Final

import msgspec
import numpy as np

from app.cycle.room import Room, room_of
from app.extender.chain import ExtenderChain
from app.framework.args import Profile
from app.framework.diagnosis import Diagnosis
from app.kube.errors import KubeError
from app.kube.transport import Reader as ApiReader
from app.model.clock import Clock
from app.model.features import Features
from app.model.objects import Node, PodDisruptionBudget, Taint
from app.model.pod import Pod
from app.model.pod_groups import LabelledPodGroup, PodGroup, group_of
from app.model.status import SchedulingError
from app.observe.metrics.series import MetricFamilies
from app.plugins.default_preemption.budgets import DisruptionBudgets
from app.scheduler import kinds
from app.scheduler.whatif.advice import Advice
from app.scheduler.whatif.manifests import (
    DEFAULT_PRIORITY,
    SYSTEM_PRIORITIES,
    Manifest,
    ManifestReader,
    Reading,
    Wanted,
)
from app.scheduler.whatif.world import Failed, GivenUp, ImaginedCluster, Pace
from app.state.mirror import MirrorBrokenError
from app.state.scheduler_state import SchedulerState
from app.wire.kube import NodeDecoder, decoder_for
from app.wire.whatif_v1 import (
    MAX_COPIES,
    MAX_PODS,
    BudgetAnswer,
    CountAnswer,
    EvictedPod,
    NodeAnswer,
    PodAnswer,
    RefusedError,
    Stop,
    Suggestion,
    WhatIfAnswer,
    WhatIfQuestion,
    invalid,
)

log = logging.getLogger(__name__)

#: Questions that wait for their turn at most; further ones are refused.
MAX_WAITING: Final = 16
#: Seconds without a question after which the imagined cluster is given up.
IDLE_SECONDS: Final = 600.0
#: Seconds for which pods that are there may wait for the process to lead, before the cluster is read for questions.
_BEFORE_READING: Final = 0.5
#: Copies that are tried at a time, where they have to be decided one by one.
_COPIES_AT_ONCE: Final = 64
#: Seconds for which PriorityClasses are kept.
_PRIORITIES_SECONDS: Final = 60.0
_PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
_HOSTNAME: Final = "kubernetes.io/hostname"
#: Taints with this prefix say how a node is at the moment, not what its shape is.
_CONDITIONS: Final = "node.kubernetes.io/"
_CORDON: Final = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
#: Owners whose pods belong to their node.
_DAEMONS: Final = frozenset({"DaemonSet", "Node"})

#: Pods for which changes are looked for, and the pods of a question that may have a node then.
MOST_HELPED: Final = 3
MOST_PLACED: Final = 500
_TO_BE_HELPED: Final = frozenset({"Unschedulable", "Gated"})

Priorities = Callable[[], Awaitable[Mapping[str, int]]]


class _PriorityClass(msgspec.Struct, rename="camel"):
    metadata: dict[str, Any]
    value: int = 0
    global_default: bool = False


class _PriorityClasses(msgspec.Struct):
    items: list[_PriorityClass] = []


async def priorities_of(api: ApiReader) -> Mapping[str, int]:
    """The priorities of an API server's PriorityClasses; that of the default class is DEFAULT_PRIORITY's.

    Raises KubeError, msgspec.DecodeError.
    """
    body = (await api.get(_PRIORITY_CLASSES, timeout=2.0)).body
    found = dict(SYSTEM_PRIORITIES)
    for each in msgspec.json.decode(body, type=_PriorityClasses).items:
        found[str(each.metadata.get("name"))] = each.value
        if each.global_default:
            found[DEFAULT_PRIORITY] = each.value
    return found


class WhatIf:
    """Answers questions about one scheduler's state."""

    def __init__(
        self,
        state: SchedulerState,
        profiles: Sequence[Profile],
        classes: Mapping[str, type],
        *,
        features: Features,
        clock: Clock,
        seed: int,
        priorities: Priorities,
        chain: ExtenderChain | None = None,
        synced: Callable[[], bool] = lambda: True,
        waiting: Callable[[], bool] = bool,
    ) -> None:
        """``seed``: of the questions' own random numbers. ``chain``: the extenders, which are asked by their dry runs.

        ``synced``: whether the state is complete. ``waiting``: whether pods wait for the scheduler.
        """
        self._state: Final = state
        self._profiles: Final = profiles
        self._classes: Final = classes
        self._features: Final = features
        self._clock: Final = clock
        self._rng: Final = np.random.default_rng(seed)
        self._synced: Final = synced
        self._chain: Final = chain
        self._ask_priorities: Final = priorities
        self._priorities: Mapping[str, int] = SYSTEM_PRIORITIES
        self._priorities_at = -_PRIORITIES_SECONDS
        self._reader: Final = ManifestReader(
            {kind.__name__: (kind, decoder_for(kind)) for kind in state.cluster.kinds()},
            kinds.pods(
                keep_raw=False if chain is None else chain.may_concern,
                keep_bound_raw=False,
                features=features,
            ).decoder,
            NodeDecoder(),
            [profile.scheduler_name for profile in profiles],
        )
        self._pace: Final = Pace(clock, waiting)
        self._world: ImaginedCluster | None = None
        self._budgets: DisruptionBudgets | None = None
        self._turn: Final = asyncio.Lock()
        self._waiting = 0
        self._idle: asyncio.TimerHandle | None = None
        #: How many questions were answered or refused, by question and status.
        self._asked: Final[defaultdict[tuple[str, ...], float]] = defaultdict(float)
        self._seconds: Final[defaultdict[tuple[str, ...], float]] = defaultdict(float)

    def register(self, families: MetricFamilies) -> None:
        """Adds its figures to the metrics."""
        families.computed(
            "aiokube_scheduler_whatif_questions_total",
            "Questions what would happen, by question and status code of the answer.",
            lambda: dict(self._asked),
            ("question", "code"),
            counter=True,
        )
        families.computed(
            "aiokube_scheduler_whatif_seconds_total",
            "Seconds from questions to their answers, waiting included.",
            lambda: dict(self._seconds),
            ("question",),
            counter=True,
        )

    async def ask(self, question: WhatIfQuestion, gone: Callable[[], bool] = bool) -> WhatIfAnswer:
        """The answer. ``gone``: whether nobody waits for it any longer. Raises RefusedError."""
        started, code = self._clock.monotonic(), 200
        try:
            return await self._ask(question, gone)
        except RefusedError as refused:
            code = refused.status
            raise
        except BaseException:
            code = 500
            raise
        finally:
            self._asked[question.question, str(code)] += 1
            self._seconds[(question.question,)] += self._clock.monotonic() - started

    async def _ask(self, question: WhatIfQuestion, gone: Callable[[], bool]) -> WhatIfAnswer:
        started = self._clock.monotonic()
        if not self._synced():
            raise RefusedError(503, "ServiceUnavailable", "the caches are not filled yet", 1)
        async with self.world(
            question.timeout_seconds, gone, extenders=question.extenders
        ) as world:
            at = self._clock.wall()
            asking = _Asking(self, world, question)
            answer = await asking.answer()
        return msgspec.structs.replace(
            answer,
            at=at,
            rules=self._features.version,
            seconds=round(self._clock.monotonic() - started, 6),
        )

    @asynccontextmanager
    async def world(
        self, seconds: float, gone: Callable[[], bool] = bool, *, extenders: bool = False
    ) -> AsyncIterator[ImaginedCluster]:
        """The imagined cluster as the cluster is now, for the block alone. Raises RefusedError.

        ``extenders``: whether they are asked.
        """
        if self._waiting >= MAX_WAITING:
            text = f"{MAX_WAITING} questions are waiting already"
            raise RefusedError(429, "TooManyRequests", text, self._retry_after)
        began = self._clock.monotonic()
        self._waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._turn.acquire()
        except TimeoutError:
            text = "other questions have taken all the time"
            raise RefusedError(503, "ServiceUnavailable", text, self._retry_after) from None
        finally:
            self._waiting -= 1
        try:
            left = max(0.001, seconds - (self._clock.monotonic() - began))
            await self._wait_for_turn(left)
            left = max(0.001, seconds - (self._clock.monotonic() - began))
            async with self._prepared(left, gone, extenders=extenders) as world:
                yield world
        finally:
            self._turn.release()

    async def _wait_for_turn(self, seconds: float) -> None:
        """While pods wait for the scheduler, questions take a small share of the time. Raises RefusedError."""
        ends = self._clock.monotonic() + seconds
        reads = self._world is None
        try:
            if reads and self._state.ready:
                await asyncio.sleep(min(_BEFORE_READING, seconds))
            await self._pace.turn(ends - self._clock.monotonic(), reads=reads)
        except TimeoutError:
            text = "pods wait to be scheduled, and questions have had their share of the time"
            raise RefusedError(503, "ServiceUnavailable", text, self._retry_after) from None

    @property
    def _retry_after(self) -> int:
        return math.ceil(self._pace.until_turn)

    @asynccontextmanager
    async def _prepared(
        self, seconds: float, gone: Callable[[], bool], *, extenders: bool
    ) -> AsyncIterator[ImaginedCluster]:
        if self._idle is not None:
            self._idle.cancel()
        world, self._world = self._world, None
        if world is None:
            world = ImaginedCluster(
                self._state,
                self._profiles,
                self._classes,
                clock=self._clock,
                pace=self._pace,
                rng=self._rng,
                features=self._features,
                chain=self._chain,
            )
            budgets = world.state.cluster.lister(PodDisruptionBudget)
            self._budgets = DisruptionBudgets(budgets, self._features.rules)
        try:
            async with world.question(seconds, gone, extenders=extenders):
                yield world
        except GivenUp:
            # The cluster is large, and has not been read yet; what was read is kept.
            raise RefusedError(
                504, "Timeout", f"there was no answer within {seconds:.3g} s; ask again"
            ) from None
        except MirrorBrokenError as error:
            log.error("The imagined cluster is made anew: %s", error)
            raise RefusedError(
                503, "ServiceUnavailable", "the state has changed; ask again", 1
            ) from error
        finally:
            if world.intact:
                self._world = world
                loop = asyncio.get_running_loop()
                self._idle = loop.call_later(IDLE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        """Gives up the imagined cluster: nobody has asked for long."""
        self._world = self._budgets = None

    def close(self) -> None:
        """Forgets everything."""
        if self._idle is not None:
            self._idle.cancel()
        self._give_up()

    # ------------------------------------------------------------ for questions

    async def read(self, question: WhatIfQuestion, world: ImaginedCluster) -> Reading:
        """The objects of a question. Raises RefusedError."""
        problem = await self._refresh_priorities()
        reading = self._reader.read(question, self._priorities, world.state.table.nodes)
        if problem:
            reading.warnings.append(problem)
        return reading

    async def _refresh_priorities(self) -> str:
        """Reads the PriorityClasses, if it is time to. Returns why it could not."""
        now = self._clock.monotonic()
        if now - self._priorities_at < _PRIORITIES_SECONDS:
            return ""
        try:
            self._priorities = await self._ask_priorities()
        except (KubeError, msgspec.DecodeError, OSError) as error:
            return f"PriorityClasses cannot be read ({error}): only numbers in spec.priority count"
        self._priorities_at = now
        return ""

    def node(self, value: Manifest) -> Node:
        """A node of a manifest. Raises RefusedError."""
        return self._reader.node(value)

    def sent_pod(self, body: bytes) -> Pod:
        """A pod as a caller of filter sends it, without its node. Raises RefusedError."""
        return self._reader.sent_pod(body)

    def sent_node(self, body: bytes, place: str) -> Node:
        """A node as a caller of filter sends it. Raises RefusedError."""
        return self._reader.sent_node(body, place)

    def pod(self, key: str) -> Pod:
        """A pod of the cluster by NAMESPACE/NAME. Raises RefusedError."""
        pod = self._state.pods.get(key)
        if pod is None:
            raise RefusedError(404, "NotFound", f"pod {key[:507]!r} is not found")
        return pod

    def uid(self) -> str:
        """A uid that no pod has had."""
        return self._reader.uid()

    def budgets_against(self, pods: Iterable[Pod]) -> list[BudgetAnswer]:
        """The budgets that allow fewer disruptions than the eviction of these pods."""
        budgets = self._budgets
        if budgets is None:
            return []
        found = []
        for key, number in sorted(budgets.count(pods).items()):
            allowed = budgets.allowed(key)
            if number > allowed:
                found.append(BudgetAnswer(*key, number, allowed))
        return found


class _Asking:
    """One question."""

    def __init__(self, whatif: WhatIf, world: ImaginedCluster, question: WhatIfQuestion) -> None:
        self._whatif: Final = whatif
        self._world: Final = world
        self._question: Final = question
        self._warnings: list[str] = []
        #: Pods that are tried, in their order, and where those that were moved came from (by uid).
        self._pods: list[Pod] = []
        self._before: Final[dict[str, str]] = {}
        #: Pods that are not tried, and why.
        self._left: list[tuple[Pod, Failed]] = []
        self._over = False

    async def answer(self) -> WhatIfAnswer:
        """The answer, without its times. Raises RefusedError."""
        match self._question.question:
            case "fits":
                return await self._fits()
            case "how-many":
                return await self._how_many()
            case "drain":
                return await self._move(self._named_nodes(), gone=False)
            case "lose":
                return await self._move(self._labelled_nodes(), gone=True)
            case "needs":
                return await self._needs()

    # ------------------------------------------------------------ what is asked

    async def _fits(self) -> WhatIfAnswer:
        reading = await self._read()
        await self._put_others(reading)
        self._pods = [*(await self._new_pods(reading)), *self._known_pods()]
        await self._put(self._pods)
        await self._settle()
        told = await self._told()
        return await self._with_suggestions(told, reading) if self._question.changes else told

    async def _how_many(self) -> WhatIfAnswer:
        reading = await self._read()
        most = self._question.copies or MAX_COPIES
        await self._put_others(reading)
        counts = []
        for wanted in reading.wanted:
            counts.append(await self._count(reading, wanted, most))
            if self._over:
                break
        alone = counts[0] if len(counts) == 1 else None
        return self._with_warnings(
            count=sum(each.count for each in counts),
            counts=counts,
            stopped_by=[] if alone is None else alone.stopped_by,
            message="" if alone is None else alone.message,
            truncated=self._over or len(counts) < len(reading.wanted),
        )

    async def _move(self, nodes: Sequence[Node], *, gone: bool) -> WhatIfAnswer:
        """Nodes are cordoned and drained, or ``gone``: their pods are made again by their controllers."""
        world, table = self._world, self._world.state.table
        if self._question.extenders:
            raise invalid(
                "drain and lose do not ask extenders: what is kept of bound pods is not enough"
            )
        moved: list[tuple[Pod, str]] = []
        leaving: Counter[str] = Counter()
        drained: list[Pod] = []
        for node in nodes:
            pods = list(table.pods[table.row_of[node.name]].values())
            for pod in pods:
                if pod.owner is not None and pod.owner.kind in _DAEMONS:
                    if gone:
                        moved.append((pod, ""))
                    continue
                moved.append((pod, node.name))
                leaving[node.name] += 1
                if not pod.terminating:
                    drained.append(pod)
        budgets = self._whatif.budgets_against(drained)
        for node in nodes:
            world.change(Node, node, None if gone else _cordoned(node))
        for pod, _ in moved:
            world.change(Pod, pod, None)
            await world.pace.wait_for_room()
        for pod, node_name in sorted(moved, key=lambda each: each[0].key):
            if node_name and not pod.terminating:
                self._make_again(pod, node_name)
                await world.pace.wait_for_room()
        await self._put(self._pods)
        await self._settle()
        return await self._told(budgets=budgets, leaving=leaving)

    async def _needs(self) -> WhatIfAnswer:
        reading = await self._read()
        shape, daemons = self._shape()
        pods = await self._new_pods(reading)
        most = len(pods)
        found: dict[int, int] = {}

        async def pending(count: int) -> int:
            """How many pods have no node with so many nodes more."""
            if found:
                await self._world.again()
            self._pods = pods
            await self._put_others(reading)
            await self._add_nodes(shape, daemons, count)
            await self._put(pods)
            await self._settle()
            found[count] = sum(self._world.fate(pod) is not None for pod in pods)
            return found[count]

        none, low, high = await pending(0), 0, 1
        if none:
            while not self._over and await pending(high):
                low = high
                if high == most or found[high] == none:
                    return await self._no_number(most, useless=found[high] == none and high == 1)
                high = min(2 * high, most)
            while not self._over and high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if await pending(middle) else (low, middle)
            if not self._over and min(found, key=lambda c: (c != high, c)) == high:
                with contextlib.suppress(GivenUp):
                    await pending(high)
        else:
            high = 0
        told = await self._told()
        if not self._over:
            return msgspec.structs.replace(told, count=high)
        known = [count for count, left in found.items() if not left]
        text = f"at most {min(known)} nodes" if known else f"more than {low} nodes"
        return msgspec.structs.replace(
            told, count=min(known, default=None), message=f"{text}; {told.message}"
        )

    async def _no_number(self, most: int, *, useless: bool) -> WhatIfAnswer:
        """No number of nodes helps all pods."""
        told = await self._told()
        first = next((each for each in told.pods if not each.node), None)
        why = "" if first is None else f": {first.message}"
        text = (
            "no pod gets a node by one more of this shape"
            if useless
            else f"not even {most} nodes are enough"
        )
        return msgspec.structs.replace(told, message=text + why, stopped_by=self._stops())

    # ------------------------------------------------------------ what must change

    async def _with_suggestions(self, told: WhatIfAnswer, reading: Reading) -> WhatIfAnswer:
        """The answer, with what must change for some of the pods that stay pending: those with different specs."""
        placed = self._base()
        if len(placed) > MOST_PLACED:
            text = f"changes are looked for if at most {MOST_PLACED} pods of a question get a node"
            self._warnings.append(text)
            return told
        found: dict[str, list[Suggestion]] = {}
        for pod, failed in self._different_failures():
            advice = Advice(
                self._world,
                pod,
                uid=self._whatif.uid,
                prepare=lambda: self._prepare(reading, placed),
                budgets=self._whatif.budgets_against,
            )
            await advice.search(failed)
            found[pod.key] = advice.found
            if advice.cut:
                self._warnings.append(f"pod {pod.key}: not every change was tried")
        rows = [
            msgspec.structs.replace(row, suggestions=found.get(f"{row.namespace}/{row.name}", []))
            for row in told.pods
        ]
        return msgspec.structs.replace(told, pods=rows, warnings=self._warnings)

    def _different_failures(self) -> list[tuple[Pod, Failed]]:
        """Those for which changes are looked for, one of each template."""
        found: dict[int, tuple[Pod, Failed]] = {}
        judged: dict[int, Pod] = {}
        for pod in self._pods:
            failed = self._world.fate(pod)
            if failed is None or group_of(pod) is not None or failed.reason not in _TO_BE_HELPED:
                continue
            if self._world.asks_extenders and self._world.concerned(pod):
                judged.setdefault(id(pod.template), pod)
                continue
            found.setdefault(id(pod.template), (pod, failed))
            if len(found) == MOST_HELPED:
                break
        for pod in islice(judged.values(), MOST_HELPED):
            text = "changes are not looked for where extenders are asked, as they judge pods as they are sent"
            self._warnings.append(f"pod {pod.key}: {text}")
        return list(found.values())

    def _base(self) -> list[tuple[Pod, list[Pod]]]:
        """The pods that have got a node, on it, each with its victims; in the order of the decisions."""
        outcomes = self._world.outcomes
        return [
            (assumed.pod, outcomes.preempts.get(uid, []))
            for uid, assumed in outcomes.placed.items()
        ]

    async def _prepare(self, reading: Reading, placed: Iterable[tuple[Pod, Sequence[Pod]]]) -> None:
        """Makes the imagined cluster as it was when the pods of the question had been decided. Raises GivenUp."""
        await self._put_others(reading)
        for pod, victims in placed:
            await self._world.pace.wait_for_room()
            for victim in victims:
                known = self._world.state.cache.get(victim.uid)
                if known is not None:
                    self._change(Pod, known, None)
            self._change(Pod, None, pod)

    # ------------------------------------------------------------ parts of questions

    async def _read(self) -> Reading:
        reading = await self._whatif.read(self._question, self._world)
        self._warnings += reading.warnings
        return reading

    async def _put_others(self, reading: Reading) -> None:
        """Adds the objects that are no pods. Raises RefusedError."""
        cluster = self._world.state.cluster
        for kind, value in reading.others:
            if kind in (PodGroup, LabelledPodGroup) and not cluster.pod_groups.path_of(kind):
                raise invalid(
                    f"PodGroup {value.key}: this scheduler reads no groups of this version"
                )
            self._change(kind, cluster.lister(kind).get(value.name, value.namespace), value)
            await self._pause()

    async def _new_pods(self, reading: Reading) -> list[Pod]:
        """The pods of all objects. Raises RefusedError."""
        pods: list[Pod] = []
        seen: set[str] = set()
        others: Counter[str] = Counter()
        for wanted in reading.wanted:
            for pod in wanted.pods():
                key, name = pod.key, pod.name
                while pod.key in seen or self._is_taken(pod):
                    others[key] += 1
                    pod = msgspec.structs.replace(pod, name=f"{name}-x{others[key]}")  # noqa: PLW2901
                seen.add(pod.key)
                pods.append(pod)
                await self._pause()
        if self._question.extenders:
            self._check_dry_runs(pods)
        return pods

    def _known_pods(self) -> list[Pod]:
        """The pods of the cluster that the question names, or pods like them. Raises RefusedError."""
        pods: list[Pod] = []
        for key in self._question.pods:
            pod = self._whatif.pod(key)
            if not self._world.state.responsible_for(pod):
                raise invalid(f"pod {key}: {pod.spec.scheduler_name} is another scheduler")
            names = (
                [pod.name]
                if self._question.copies is None and not pod.node_name
                else [f"{pod.name}-{n}" for n in range(1, (self._question.copies or 1) + 1)]
            )
            if len(pods) + len(names) > MAX_PODS:
                raise invalid(f"more than {MAX_PODS} pods are asked about at once")
            pods += [self._like(pod, name) for name in names]
        return pods

    def _like(self, pod: Pod, name: str) -> Pod:
        """A pod without a node that is like this one."""
        return msgspec.structs.replace(
            pod,
            name=name,
            uid=self._whatif.uid(),
            deletion_timestamp=None,
            node_name="",
            nominated_node_name="",
            resource_version="0",
            phase="Pending",
            conditions=(),
            start_time=None,
            resized=None,
        )

    def _check_dry_runs(self, pods: Iterable[Pod]) -> None:
        """Raises RefusedError if an extender would have to be asked that has no dry run."""
        names = {name for pod in pods for name in self._world.not_asked(pod)}
        if names:
            raise invalid(f"extender {', '.join(sorted(names))} has no dryRun in the configuration")

    def _is_taken(self, pod: Pod) -> bool:
        """Whether a pod with a node has this name. One without is the pod that is meant."""
        known = self._world.state.pods.get(pod.key)
        return known is not None and bool(known.node_name)

    async def _put(self, pods: Iterable[Pod]) -> None:
        """The pods come, as far as the time allows. Raises RefusedError."""
        try:
            for pod in pods:
                known = self._world.state.pods.get(pod.key)
                if known is not None:
                    self._change(Pod, known, None)
                self._change(Pod, None, pod)
                await self._world.pace.wait_for_room()
        except GivenUp:
            self._over = True

    def _change(self, kind: type[Any], old: Any, new: Any) -> None:
        try:
            self._world.change(kind, old, new)
        except ValueError as error:
            raise invalid(str(error)) from error

    async def _pause(self) -> None:
        """Lets others run, unless the time is over: little is left to do then."""
        try:
            if not self._over:
                await self._world.pace.wait_for_room()
        except GivenUp:
            self._over = True

    async def _settle(self) -> None:
        """Lets the pods be decided, as far as the time allows."""
        try:
            await self._world.settle()
        except GivenUp:
            self._over = True

    async def _count(self, reading: Reading, wanted: Wanted, most: int) -> CountAnswer:
        pod = wanted.pod(0)
        if self._question.extenders:
            self._check_dry_runs([pod])
        if group_of(pod) is not None:
            raise invalid(f"{wanted.title}: how-many counts single pods, not pods of a group")
        framework = self._world.frameworks[pod.spec.scheduler_name]
        room: Room | None = None
        state = self._world.state
        steps = room_of(framework, state.table, pod, state.nominated_for, most)
        try:
            while not (self._world.asks_extenders and self._world.concerned(pod)):
                next(steps)
                await self._world.pace.wait_for_room()
        except StopIteration as end:
            room = end.value
        except GivenUp:
            self._over = True
            return CountAnswer(wanted.title, 0, at_least=True, message="", stopped_by=[])
        except SchedulingError as error:
            raise invalid(f"{wanted.title}: {error}") from error
        if room is None:
            return await self._count_one_by_one(reading, wanted, most)
        count = int(room.by_row.sum())
        if count >= most:
            return CountAnswer(wanted.title, most, at_least=True, message="", stopped_by=[])
        return CountAnswer(
            wanted.title,
            count,
            at_least=False,
            message=room.diagnosis.message(),
            stopped_by=_stops(room.diagnosis),
        )

    async def _count_one_by_one(self, reading: Reading, wanted: Wanted, most: int) -> CountAnswer:
        """Counts by deciding: what looks across nodes or volumes has a say."""
        number, failed = 0, None
        most_tried = min(most, MAX_PODS)
        pods: list[Pod] = []
        while failed is None and number < most_tried and not self._over:
            some = [wanted.pod(i) for i in range(number, min(most_tried, number + _COPIES_AT_ONCE))]
            number += len(some)
            pods += some
            await self._put(some)
            await self._settle()
            failed = next((fate for each in some if (fate := self._world.fate(each))), None)
        count = sum(self._world.fate(each) is None for each in pods)
        await self._world.again()
        await self._put_others(reading)
        if failed is None or failed.reason == "NotDecided":
            return CountAnswer(wanted.title, count, at_least=True, message="", stopped_by=[])
        diagnosis = failed.diagnosis
        return CountAnswer(
            wanted.title,
            count,
            at_least=False,
            message=failed.message if diagnosis is None else diagnosis.message(),
            stopped_by=[] if diagnosis is None else _stops(diagnosis),
        )

    def _named_nodes(self) -> list[Node]:
        if not self._question.nodes:
            raise invalid("drain needs the names of nodes")
        return [self._node(name) for name in dict.fromkeys(self._question.nodes)]

    def _node(self, name: str) -> Node:
        table = self._world.state.table
        row = table.row_of.get(name)
        node = None if row is None else table.nodes[row]
        if node is None:
            raise RefusedError(404, "NotFound", f"node {name[:253]!r} is not found")
        return node

    def _labelled_nodes(self) -> list[Node]:
        key, equals, value = self._question.label.partition("=")
        if not key or not equals:
            raise invalid("lose needs a label as KEY=VALUE")
        found = [
            node
            for node in self._world.state.table.nodes
            if node is not None and node.labels.get(key) == value
        ]
        if not found:
            raise RefusedError(
                404, "NotFound", f"no node has the label {self._question.label[:317]}"
            )
        return found

    def _make_again(self, pod: Pod, node_name: str) -> None:
        """Its controller makes another pod like it; this one is tried, or cannot be."""
        state = self._world.state
        again = self._like(pod, pod.name)
        self._before[again.uid] = node_name
        if pod.owner is None:
            text = "no controller makes this pod again"
            self._left.append((again, Failed("Unmanaged", text)))
        elif not state.responsible_for(pod):
            text = f"pods of {pod.spec.scheduler_name} are placed by another scheduler"
            self._left.append((again, Failed("OtherScheduler", text)))
        else:
            self._pods.append(again)

    def _shape(self) -> tuple[Node, Sequence[Pod]]:
        """A node of the shape that is asked about, and the pods that each such node has of its own."""
        question = self._question
        if (question.node is None) == (not question.like):
            raise invalid(
                "needs takes a shape: either a Node manifest (node) or the name of a node (like)"
            )
        if question.node is not None:
            self._warnings.append("pods of DaemonSets that would run on such nodes are not counted")
            return self._whatif.node(question.node), ()
        node = self._node(question.like)
        table = self._world.state.table
        pods = table.pods[table.row_of[node.name]].values()
        taints = tuple(t for t in node.spec.taints or () if not t.key.startswith(_CONDITIONS))
        spec = msgspec.structs.replace(node.spec, unschedulable=False, taints=taints)
        daemons = [pod for pod in pods if pod.owner is not None and pod.owner.kind in _DAEMONS]
        return msgspec.structs.replace(node, spec=spec), daemons

    async def _add_nodes(self, shape: Node, daemons: Sequence[Pod], count: int) -> None:
        for number in range(count):
            name = f"{shape.name}-what-if-{number}"
            labels = {**shape.labels, _HOSTNAME: name}
            meta = msgspec.structs.replace(
                shape.metadata, name=name, labels=labels, uid=self._whatif.uid()
            )
            self._change(Node, None, msgspec.structs.replace(shape, metadata=meta, raw=None))
            for pod in daemons:
                own = f"{pod.name}-what-if-{number}"
                there = msgspec.structs.replace(
                    pod, name=own, uid=self._whatif.uid(), node_name=name
                )
                self._change(Pod, None, there)
            await self._pause()
            if self._over:
                return

    # ------------------------------------------------------------ the answer

    async def _told(
        self,
        *,
        budgets: Sequence[BudgetAnswer] = (),
        leaving: Mapping[str, int] | None = None,
    ) -> WhatIfAnswer:
        world, outcomes = self._world, self._world.outcomes
        by_uid = {pod.uid: pod for pod in self._pods}
        rows: list[PodAnswer] = []
        by_chance = outcomes.by_timing
        coming: Counter[str] = Counter()
        going: Counter[str] = Counter(leaving or {})
        for uid, assumed in outcomes.placed.items():
            by_chance = by_chance or outcomes.tied.get(uid, False)
            pod = by_uid.get(uid)
            if pod is None:
                continue
            coming[assumed.pod.node_name] += 1
            victims = outcomes.preempts.get(uid, ())
            going.update(victim.node_name for victim in victims)
            rows.append(
                PodAnswer(
                    pod.namespace,
                    pod.name,
                    node=assumed.pod.node_name,
                    node_before=self._before.get(uid, ""),
                    preempts=[_name(victim) for victim in victims],
                    tie=by_chance,
                )
            )
        failed = [(pod, fate) for pod in self._pods if (fate := world.fate(pod)) is not None]
        failed += self._left
        limit, placed, pending = self._question.limit, len(rows), len(failed)
        # Of both, those without a node first.
        del rows[max(0, limit - pending) :]
        steps = self._add_pending(rows, failed[: limit - len(rows)])
        await world.pace.through(steps, to_the_end=True)
        nodes = [
            NodeAnswer(name, coming[name], going[name], self._requested(name))
            for name in sorted(coming.keys() | going.keys())[: limit + 1]
        ]
        return self._with_warnings(
            placed=placed,
            pending=pending,
            pods=rows,
            budgets=list(budgets),
            nodes=nodes[:limit],
            stopped_by=self._stops(),
            truncated=self._over or placed + pending > limit or len(nodes) > limit,
        )

    def _add_pending(
        self, rows: list[PodAnswer], failed: Iterable[tuple[Pod, Failed]]
    ) -> Generator[None, None, None]:
        for pod, fate in failed:
            rows.append(self._pending(pod, fate))
            yield

    def _requested(self, name: str) -> dict[str, int]:
        """What is requested on a node now, that is, afterwards; nothing for one that is gone."""
        table = self._world.state.table
        row = table.row_of.get(name)
        if row is None:
            return {}
        amounts = {each: table.requested.exact(each, row) for each in table.requested.names}
        found = {each: amount for each, amount in amounts.items() if amount}
        return {**found, "pods": len(table.pods[row])}

    def _pending(self, pod: Pod, fate: Failed) -> PodAnswer:
        message = fate.message
        if self._question.question == "needs" and fate.diagnosis is not None:
            message = fate.diagnosis.message()  # without that these pods never preempt
        return PodAnswer(
            pod.namespace,
            pod.name,
            node_before=self._before.get(pod.uid, ""),
            preempts=[_name(victim) for victim in self._world.outcomes.preempts.get(pod.uid, ())],
            reason=fate.reason,
            message=message,
            tie=self._world.outcomes.by_timing,
        )

    def _stops(self) -> list[Stop]:
        """The reasons of the first pod that has no node."""
        for pod in self._pods:
            fate = self._world.fate(pod)
            if fate is not None and fate.diagnosis is not None:
                return _stops(fate.diagnosis)
        return []

    def _with_warnings(self, **fields: Any) -> WhatIfAnswer:
        message = fields.pop("message", "")
        if self._over:
            more = "the time was over before everything was decided"
            message = f"{message}; {more}" if message else more
        return WhatIfAnswer(
            self._question.question,
            "",
            0.0,
            0.0,
            message=message,
            warnings=self._warnings,
            **fields,
        )


def _name(pod: Pod) -> EvictedPod:
    return EvictedPod(pod.namespace, pod.name, pod.node_name, pod.priority)


def _stops(diagnosis: Diagnosis) -> list[Stop]:
    if diagnosis.pre_filter_message:
        return [Stop(diagnosis.pre_filter_message, diagnosis.node_count)]
    return [Stop(reason, count) for reason, count in diagnosis.reason_counts().most_common()]


def _cordoned(node: Node) -> Node:
    """The node as ``kubectl cordon`` and the node controller leave it."""
    taints = tuple(node.spec.taints or ())
    if not any(each.key == _CORDON.key for each in taints):
        taints = (*taints, _CORDON)
    return msgspec.structs.replace(
        node, spec=msgspec.structs.replace(node.spec, unschedulable=True, taints=taints)
    )
