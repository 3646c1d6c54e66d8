"""Calls all configured extenders in order, and merges their answers.

See docs/spec/extenders.md#order-and-side-effects.

Extenders that are not ignorable come first. Filters run one after another, each on the nodes that the previous one
accepted; prioritize calls run concurrently; preempt calls run one after another on the remaining candidates; the first
binder that is interested in the pod binds it. No call is repeated.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Final

import msgspec
import numpy as np

from app.extender import events
from app.extender.client import HTTPExtender, PodsOn
from app.extender.config import ExtenderConfigError, Verb
from app.extender.errors import ExtenderError
from app.extender.known_answers import KnownAnswers
from app.model.pod import Pod, PodTemplate
from app.model.selectors import Labels
from app.model.status import SchedulingError
from app.state.columns.arrays import Int64
from app.wire.extender_v1 import ExtenderArgs, FilterAnswer, Victims
from app.wire.group_v1 import GroupQuestion

#: Asks the API server which node the pod is bound to, None for none. True: the extender did not answer and may still
#: bind it.
LookUp = Callable[[bool], Awaitable[str | None]]


# Needed for each pod: to look up a member takes as long as to call a function.
_FILTER: Final = Verb.FILTER
_PRIORITIZE: Final = Verb.PRIORITIZE
_BIND: Final = Verb.BIND
_GROUP: Final = Verb.GROUP


class FilterResult(msgspec.Struct):
    """The nodes that the extenders accepted. Later answers, and later rounds of the same attempt, are merged into it.

    ``survivors`` is the answer of the last extender and is sent to prioritize: a name may occur twice, and extenders
    that get whole nodes may have added names that were not sent. Use ``known`` to choose a node from.
    """

    #: The arguments with the survivors; those of filter if no node was rejected.
    args: ExtenderArgs
    #: Reasons by node name of nodes where preemption may help (Unschedulable).
    failed: dict[str, str] = {}
    #: Reasons by node name of nodes where preemption does not help (UnschedulableAndUnresolvable).
    unresolvable: dict[str, str] = {}
    #: The error that ended the attempt; there are no survivors then.
    error: ExtenderError | None = None
    #: Failures of ignorable extenders that were ignored.
    ignored: list[ExtenderError] = []
    #: The extenders that rejected nodes, or whose error ended the attempt, by name.
    rejected_by: list[str] = []
    #: The shortest Retry-After, in seconds, of the extenders that rejected nodes.
    retry_after: float | None = None
    #: The names of the extenders that accepted one of several nodes, and of those that accepted more.
    left_one: list[str] = []
    left_several: list[str] = []

    @property
    def survivors(self) -> list[str]:
        """Names of nodes."""
        return self.args.names

    def known(self, candidates: list[str]) -> list[str]:
        """The survivors among ``candidates``, each once, in the order of the candidates."""
        if self.survivors is candidates:
            return candidates
        survivors = set(self.survivors)
        return [name for name in candidates if name in survivors]

    def add(self, extender: str, answer: FilterAnswer) -> None:
        """Merges one extender's answer.

        The verdict of a later extender on a node replaces an earlier one; a node in both maps of an answer takes the
        unresolvable reason.
        """
        sent, kept = self.args.names, answer.kept
        if answer.failed or answer.failed_and_unresolvable:
            self._add_reasons(answer)
        if len(kept) != len(sent):
            self.rejected_by.append(extender)
            self._retry(answer.retry_after)
        if len(kept) > 1:
            self.left_several.append(extender)
        elif len(kept) == 1 and len(sent) > 1:
            self.left_one.append(extender)
        self.args = self.args.about(kept)

    def _add_reasons(self, answer: FilterAnswer) -> None:
        for name, reason in answer.failed.items():
            self.unresolvable.pop(name, None)
            self.failed[name] = reason
        for name, reason in answer.failed_and_unresolvable.items():
            self.failed.pop(name, None)
            self.unresolvable[name] = reason

    def fail(self, error: ExtenderError) -> None:
        """An extender that is not ignorable failed, or cannot be called: no node is left."""
        self.error = _stored(error)
        self.rejected_by, self.retry_after = [error.extender], error.retry_after
        self.args = self.args.about([])

    def merge_rejections(self, earlier: "FilterResult") -> None:
        """Adds the rejecting extenders and the Retry-After of an earlier round."""
        self.rejected_by = list(dict.fromkeys(earlier.rejected_by + self.rejected_by))
        self._retry(earlier.retry_after)

    def _retry(self, seconds: float | None) -> None:
        times = (seconds, self.retry_after)
        self.retry_after = min((time for time in times if time is not None), default=None)


class ExtenderChain:
    """The extenders of one configuration, shared by all profiles."""

    def __init__(
        self,
        extenders: Sequence[HTTPExtender],
        sink: events.Sink = events.ignore,
        shadows: Sequence[HTTPExtender] = (),
        dry_runs: Sequence[HTTPExtender] = (),
    ) -> None:
        """``shadows`` and ``dry_runs`` are not called by the chain, only kept and closed.

        Raises ExtenderConfigError when two extenders might both be asked to bind the same pod."""
        self.extenders: Final = tuple(sorted(extenders, key=lambda e: e.ignorable))
        self.shadows: Final = tuple(shadows)
        #: Clients of ``extenders`` for dry runs (app.extender.dry_run).
        self.dry_runs: Final = tuple(dry_runs)
        #: The extenders of both kinds.
        self.all: Final = (*self.extenders, *self.shadows)
        self._emit: Final = sink
        self._with: Final = {
            verb: tuple(e for e in self.extenders if e.supports(verb)) for verb in Verb
        }
        #: The verbs whose extenders are interested in every pod.
        self._for_all: Final = {
            verb for verb, extenders in self._with.items() if all(e.concerns_all for e in extenders)
        }
        #: Whether a preempt call may leave a node without victims that had none before (Kubernetes 1.38).
        self.empty_victims = False
        _check_binders(self._with[Verb.BIND])

    def __bool__(self) -> bool:
        return bool(self.extenders)

    @property
    def binds(self) -> bool:
        """Whether any extender has a bind verb."""
        return bool(self._with[Verb.BIND])

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the configuration of the extenders."""
        return tuple(warning for extender in self.all for warning in extender.warnings)

    def concerned(self, pod: Pod, verb: Verb) -> tuple[HTTPExtender, ...]:
        """The extenders that are interested in this pod, in order."""
        extenders = self._with[verb]
        if verb in self._for_all:
            return extenders
        return tuple([e for e in extenders if e.is_interested(pod)])

    def limits(self, pod: Pod) -> dict[str, int]:
        """About how many pods each extender that filters or prioritizes for this one is called at a time, by its
        name."""
        asked = (*self.concerned(pod, Verb.FILTER), *self.concerned(pod, Verb.PRIORITIZE))
        return {extender.name: extender.places.limit.limit for extender in asked}

    def may_concern(self, template: PodTemplate, labels: Labels) -> bool:
        """Whether any extender is interested in such pods, in some namespaces at least."""
        for extender in self.all:  # noqa: SIM110 - called for every pod
            if extender.may_concern(template, labels):
                return True
        return False

    def warn(self, extender: str, text: str) -> None:
        """Emits a warning about an extender."""
        self._emit(events.ExtenderWarning(extender, text))

    async def filter(self, args: ExtenderArgs, known: KnownAnswers | None = None) -> FilterResult:
        """Runs the filters until no node is left. An error of an extender that is not ignorable is in the result.

        With ``known`` the extenders are asked only about nodes whose answer is not known yet. If a breaker holds back a
        call that the pod needs, no extender is called, and that is the error.
        """
        result = FilterResult(args)
        asked = self._asked(args.pod, _FILTER, known)
        missing = self._missing(args.pod, asked, known)
        if missing is not None:
            result.fail(missing)
            return result
        for extender in asked:
            if not result.survivors:
                break
            try:
                if known is None:
                    answer = await extender.filter(result.args)
                else:
                    answer = await known.filter(extender, result.args)
            except ExtenderError as err:
                if not extender.ignorable:
                    result.fail(err)
                    break
                self._ignore(err, args.pod)
                result.ignored.append(_stored(err))
            else:
                result.add(extender.name, answer)
        return result

    async def prioritize(
        self, args: ExtenderArgs, known: KnownAnswers | None = None
    ) -> Int64 | None:
        """Calls all concurrently; int64[len(args.names)]: the sum that they add to each node's score. None without
        calls.

        An extender that fails adds nothing. ``known`` is as for ``filter``.
        """
        extenders = self._asked(args.pod, _PRIORITIZE, known)
        if not extenders:
            return None
        if len(extenders) == 1:
            return await self._scores(extenders[0], args, known)
        calls = [self._scores(extender, args, known) for extender in extenders]
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(call) for call in calls]
        totals: Int64 = np.sum([task.result() for task in tasks], axis=0)
        return totals

    async def ask_ahead(
        self, args: ExtenderArgs, known: KnownAnswers, wanted: Callable[[], bool]
    ) -> None:
        """Makes the calls of ``filter`` and ``prioritize`` before the pod's turn, as long as they are ``wanted``.

        Their answers, and errors, are kept in ``known``.
        """
        asked = self._asked(args.pod, Verb.FILTER, known)
        if self._missing(args.pod, asked, known) is not None:
            return
        for extender in asked:
            if not args.names or not wanted():
                return
            if extender.supports(Verb.GROUP) and not known.knows(extender, args):
                return
            try:
                answer = await known.filter(extender, args, ahead=True)
            except ExtenderError:
                if not extender.ignorable:
                    return
            else:
                args = args.about(answer.kept)
        if len(args.names) > 1 and wanted():
            extenders = self._asked(args.pod, Verb.PRIORITIZE, known)
            calls = [known.prioritize(extender, args, ahead=True) for extender in extenders]
            await asyncio.gather(*calls, return_exceptions=True)

    async def ask_group(self, questions: Sequence[GroupQuestion], known: KnownAnswers) -> None:
        """Calls the group verbs, one after another, each with the nodes that the one before has left. Raises
        ExtenderError.

        An ignorable extender that fails is not asked again about the pods of this cycle.
        """
        extenders = self._with[Verb.GROUP]
        for extender in extenders:
            mine, others = _divided(questions, extender.is_interested)
            if not mine or extender.name in known.skipped:
                continue
            try:
                await known.ask_group(extender, mine)
            except ExtenderError as err:
                if not extender.ignorable:
                    raise
                self._ignore(err, mine[0].pods[0])
                known.skipped.add(extender.name)
            else:
                if extender is not extenders[-1]:
                    questions = [*await known.left(extender, mine), *others]

    async def preempt(
        self, pod: Pod, victims: Mapping[str, Victims], pods_on: PodsOn
    ) -> dict[str, Victims]:
        """The candidates of a preemption that all extenders accept.

        Raises ExtenderError for a failure of an extender that is not ignorable, SchedulingError when such a one
        names no victims on a node.
        """
        left = dict(victims)
        for extender in self.concerned(pod, Verb.PREEMPT):
            if not left:
                break
            try:
                agreed = await extender.preempt(pod, left, pods_on)
            except ExtenderError as err:
                if not extender.ignorable:
                    raise
                self._ignore(err, pod)
                continue
            empty = {n for n, v in left.items() if not v.pods} if self.empty_victims else ()
            left = {
                name: chosen
                for name, chosen in agreed.items()
                if name in empty or _has_victims(name, chosen, extender)
            }
        return left

    def binder_for(self, pod: Pod) -> HTTPExtender | None:
        """The extender that binds this pod, None when the scheduler does."""
        return next(iter(self.concerned(pod, Verb.BIND)), None)

    async def bind(self, pod: Pod, node_name: str, look_up: LookUp) -> bool:
        """Lets an extender bind the pod. True: it is bound to ``node_name``; False: the scheduler has to bind it.

        If a call fails that the extender may have received, ``look_up`` decides, because the pod may be bound. Raises
        ExtenderError.
        """
        for extender in self.concerned(pod, Verb.BIND):
            try:
                await extender.bind(pod, node_name)
            except ExtenderError as err:
                refused = err.locked or not err.sent
                bound_to = None if refused else await look_up(err.answer_lost)
                if bound_to == node_name:
                    return True
                if bound_to or not extender.ignorable:
                    raise
                self._ignore(err, pod)
            else:
                return True
        return False

    async def close(self) -> None:
        """Closes the connections of all extenders."""
        for extender in (*self.all, *self.dry_runs):
            await extender.close()

    def _asked(self, pod: Pod, verb: Verb, known: KnownAnswers | None) -> Sequence[HTTPExtender]:
        """The extenders to ask about the pod, in order; in the cycle of a group first those with a group verb."""
        extenders = self.concerned(pod, verb)
        if known is None or not self._with[_GROUP]:
            return extenders
        whole = [e for e in self.concerned(pod, Verb.GROUP) if e.name not in known.skipped]
        return [*whole, *(e for e in extenders if not e.supports(Verb.GROUP))]

    def _missing(
        self, pod: Pod, asked: Sequence[HTTPExtender], known: KnownAnswers | None
    ) -> ExtenderError | None:
        """Why the pod cannot be bound for now, whatever those ``asked`` to filter say; None if it may be."""
        for extender in asked:
            if not extender.ignorable and (known is None or not extender.supports(_GROUP)):
                problem = extender.why_not(_FILTER)
                if problem is not None:
                    return problem
        for extender in self.concerned(pod, _BIND):
            if not extender.ignorable:
                problem = extender.why_not(_BIND)
                if problem is not None:
                    return problem
        return None

    async def _scores(
        self, extender: HTTPExtender, args: ExtenderArgs, known: KnownAnswers | None
    ) -> Int64:
        try:
            if known is None:
                return await extender.prioritize(args)
            return await known.prioritize(extender, args)
        except ExtenderError as err:
            self._ignore(err, args.pod)
            return np.zeros(len(args.names), np.int64)

    def _ignore(self, err: ExtenderError, pod: Pod) -> None:
        self._emit(events.ErrorIgnored(err, pod))


def _divided(
    questions: Iterable[GroupQuestion], concerns: Callable[[Pod], bool]
) -> tuple[list[GroupQuestion], list[GroupQuestion]]:
    """The questions about the pods that an extender ``concerns``, without those that have no nodes left, and the
    others."""
    mine, others = [], []
    for each in questions:
        ours = [pod for pod in each.pods if each.names and concerns(pod)]
        if ours:
            mine.append(GroupQuestion(ours, each.names))
        if len(ours) < len(each.pods):
            found = {pod.uid for pod in ours}
            rest = [pod for pod in each.pods if pod.uid not in found]
            others.append(GroupQuestion(rest, each.names))
    return mine, others


def _has_victims(name: str, victims: Victims, extender: HTTPExtender) -> bool:
    """Whether a node stays a candidate. Raises SchedulingError (docs/spec/extenders.md#preempt)."""
    if victims.pods or extender.ignorable:
        return bool(victims.pods)
    raise SchedulingError(f'expected at least one victim pod on node "{name}"')


def _check_binders(binders: Sequence[HTTPExtender]) -> None:
    """Several binders are allowed if no pod can concern two of them."""
    for one, other in itertools.combinations(binders, 2):
        profiles = one.config.profiles, other.config.profiles
        if all(profiles) and profiles[0].isdisjoint(profiles[1]):
            continue
        names = [{r.name for r in e.config.managed_resources} for e in (one, other)]
        shared = names[0] & names[1]
        if not all(names) or shared:
            why = f"both manage {min(shared)}" if shared else "one of them binds every pod"
            raise ExtenderConfigError(
                f"extenders {one.name} and {other.name} both have a bindVerb, and {why}; only one extender can bind "
                "a pod: give them different managedResources or profiles, or drop one bindVerb"
            )


def _stored(error: ExtenderError) -> ExtenderError:
    """The error without its traceback, whose frames hold the result that it is put into: in the cycle, what the attempt
    has held would stay until a collection of old objects, for minutes."""
    return error.with_traceback(None)
