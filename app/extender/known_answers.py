"""Keeps what extenders answered about nodes during one cycle of a pod group, so that no question is asked twice.

A node that an extender was asked about is not sent again: the answer is that of the first call, also for another domain
or reprieve of the same cycle. Calls may be made ahead of a pod's turn; an error of such a call is raised when it is the
pod's turn. For an extender with ``answers_for_template`` the answers about one pod hold for all pods of the group with
an equal spec. An extender with a group verb is asked with that verb instead of filter and prioritize.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final, TypeVar

import msgspec
import numpy as np

from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.state.columns.arrays import Int64
from app.wire.extender_v1 import ExtenderArgs, FilterAnswer
from app.wire.group_v1 import GroupArgs, GroupQuestion

T = TypeVar("T")

#: Characters of reasons that are kept in one cycle, about; what is kept of the others.
MAX_REASONS: Final = 32 * 1024 * 1024
NOT_KEPT: Final = "rejected by an extender"

#: Called after each call of filter: the extender, the number of nodes sent, and the answer or the error.
_Observe = Callable[[HTTPExtender, int, FilterAnswer | ExtenderError], None]


class _Known(msgspec.Struct, eq=False):
    """One extender's answers about one pod, or about several that it answered the same about.

    The collections are replaced and never changed: copies share them.
    """

    asked: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    failed: Mapping[str, str] = {}
    unresolvable: Mapping[str, str] = {}
    scores: Mapping[str, int] = {}
    retry_after: float | None = None
    #: The error of a call that was made ahead.
    error: ExtenderError | None = None
    #: Held during a call: whoever needs the same answer waits for it.
    calling: asyncio.Lock = msgspec.field(default_factory=asyncio.Lock)

    def copy(self) -> "_Known":
        """The same answers, to which others may be added."""
        return msgspec.structs.replace(self, error=None, calling=asyncio.Lock())

    def add(self, sent: frozenset[str], answer: FilterAnswer) -> None:
        """An answer about names that were ``sent``."""
        kept = sent.intersection(answer.kept)
        whole = len(kept) == len(sent)
        self.asked = _joined_names(self.asked, sent)
        self.kept = _joined_names(self.kept, sent if whole else kept)
        self.failed = _joined(self.failed, answer.failed)
        self.unresolvable = _joined(self.unresolvable, answer.failed_and_unresolvable)
        if answer.retry_after is not None and not whole:
            times = (answer.retry_after, self.retry_after)
            self.retry_after = min(time for time in times if time is not None)

    def about(self, names: list[str]) -> FilterAnswer:
        """The answer about these names, all of which were sent."""
        wanted = set(names)
        kept = names if wanted <= self.kept else [name for name in names if name in self.kept]
        return FilterAnswer(
            failed=self._of(self.failed, wanted),
            failed_and_unresolvable=self._of(self.unresolvable, wanted),
            kept=kept,
            retry_after=self.retry_after,
        )

    def _of(self, reasons: Mapping[str, str], wanted: set[str]) -> Mapping[str, str]:
        """The reasons for the wanted nodes, and for those that the extender named without being asked."""
        if not reasons or len(wanted) == len(self.asked):
            return reasons
        return {
            name: reason
            for name, reason in reasons.items()
            if name in wanted or name not in self.asked
        }


class KnownAnswers:
    """The answers of all extenders in one cycle."""

    def __init__(
        self,
        key: GroupKey,
        min_count: int | None,
        observe: _Observe = lambda _extender, _sent, _answer: None,
    ) -> None:
        """For a cycle of the group ``key``."""
        self._key: Final = key
        self._min_count: Final = min_count
        self._observe: Final = observe
        #: Extenders with a group verb that seem to reserve: they left one of several nodes, or the configuration says
        #: so.
        self._choosers: Final[set[str]] = set()
        #: Ignorable extenders whose group verb failed.
        self.skipped: Final[set[str]] = set()
        self._known: Final[dict[tuple[str, Hashable], _Known]] = {}
        self._nothing: Final = _Known()
        #: Characters of reasons that were answered so far.
        self._reasons = 0

    async def filter(
        self, extender: HTTPExtender, args: ExtenderArgs, *, ahead: bool = False
    ) -> FilterAnswer:
        """As ``extender.filter``, which is called about the nodes that it was not asked about yet. Raises
        ExtenderError.

        ``ahead``: an error is kept and raised once more at the next call without it.
        """
        async with self._of(extender, args.pod).calling:
            known = self._of(extender, args.pod)
            _raise(known, ahead=ahead)
            sent = args.about(_unknown(args.names, known.asked))
            if sent.names and extender.supports(Verb.GROUP):
                await self._ask_group(extender, [GroupQuestion([args.pod], sent.names)])
                known = self._of(extender, args.pod)
            elif sent.names:
                answer = await self._filter(extender, sent, known, ahead=ahead)
                if extender.config.answers_for_template and 1 == len(answer.kept) < len(sent.names):
                    # It may have chosen this node for this pod: the pods with an equal spec are asked about on their
                    # own.
                    known = self._known[extender.name, args.pod.uid] = known.copy()
                names = frozenset(sent.names)
                known.add(names, self._shortened(answer, names))
        return known.about(args.names)

    async def prioritize(
        self, extender: HTTPExtender, args: ExtenderArgs, *, ahead: bool = False
    ) -> Int64:
        """As ``extender.prioritize``, in the same way. Raises ExtenderError."""
        async with self._of(extender, args.pod).calling:
            known = self._of(extender, args.pod)
            _raise(known, ahead=ahead)
            sent = args.about(_unknown(args.names, known.scores.keys()))
            if sent.names:
                try:
                    scores = await extender.prioritize(sent)
                except ExtenderError as error:
                    known.error = error if ahead else None
                    raise
                known.scores = _joined(
                    known.scores, dict(zip(sent.names, scores.tolist(), strict=True))
                )
            count = len(args.names)
            return np.fromiter(map(known.scores.__getitem__, args.names), np.int64, count)

    async def ask_group(self, extender: HTTPExtender, questions: Sequence[GroupQuestion]) -> None:
        """Calls the group verb for these pods and nodes, without those whose answer is known. Raises ExtenderError.

        An extender that may reserve for the group is asked about everything again.
        """
        if (
            extender.config.release_verb
            or extender.config.serial
            or extender.name in self._choosers
        ):
            for each in questions:
                for pod in each.pods:
                    self.forget(extender.name, pod)
        members: dict[tuple[str, ...], GroupQuestion] = {}
        for names, known, pods in self._alike(extender, questions):
            sent = _unknown(names, known.asked)
            if sent:
                members.setdefault(tuple(sent), GroupQuestion([], sent)).pods.extend(pods)
        await self._ask_group(extender, list(members.values()))

    async def left(
        self, extender: HTTPExtender, questions: Sequence[GroupQuestion]
    ) -> list[GroupQuestion]:
        """The questions that ``ask_group`` has asked, with the nodes that the extender has left."""
        left = []
        for names, known, pods in self._alike(extender, questions):
            left.append(GroupQuestion(pods, known.about(names).kept))
            await asyncio.sleep(0)
        return left

    async def _ask_group(self, extender: HTTPExtender, members: list[GroupQuestion]) -> None:
        for part in GroupArgs(self._key, self._min_count, members).parts():
            answer = await extender.group(part)
            alike = {
                id(each.names): (frozenset(each.names), dict.fromkeys(each.names, 0))
                for each in part.members
            }
            for verdict in answer.verdicts:
                if 1 == len(verdict.kept) < len(verdict.sent):
                    self._choosers.add(extender.name)
                filtered = FilterAnswer(
                    failed=verdict.failed,
                    failed_and_unresolvable=verdict.failed_and_unresolvable,
                    kept=verdict.kept,
                    retry_after=answer.retry_after,
                )
                sent, zeros = alike[id(verdict.sent)]
                filtered = self._shortened(filtered, sent)
                scores = _joined(zeros, verdict.scores)
                question = GroupQuestion(verdict.pods, verdict.sent)
                for _, before, pods in self._alike(extender, [question]):
                    known = before.copy()
                    known.add(sent, filtered)
                    known.scores = _joined(known.scores, scores)
                    self._known.update({(extender.name, pod.uid): known for pod in pods})
                await asyncio.sleep(0)

    def knows(self, extender: HTTPExtender, args: ExtenderArgs) -> bool:
        """Whether ``filter`` would call nothing."""
        return not _unknown(args.names, self._of(extender, args.pod).asked)

    def _alike(
        self, extender: HTTPExtender, questions: Iterable[GroupQuestion]
    ) -> list[tuple[list[str], _Known, list[Pod]]]:
        """The questions, divided so that the same is known about all pods in one: names, what is known, and pods."""
        alike: dict[tuple[int, int], tuple[list[str], _Known, list[Pod]]] = {}
        for number, each in enumerate(questions):
            for pod in each.pods:
                known = self._known.get((extender.name, pod.uid), self._nothing)
                alike.setdefault((number, id(known)), (each.names, known, []))[2].append(pod)
        return list(alike.values())

    def _shortened(self, answer: FilterAnswer, sent: frozenset[str]) -> FilterAnswer:
        """The answer as it is kept: without its reasons when there were very many in this cycle."""
        given = answer.failed, answer.failed_and_unresolvable
        self._reasons += sum(len(n) + len(r) for reasons in given for n, r in reasons.items())
        if self._reasons <= MAX_REASONS:
            return answer
        failed, unresolvable = (dict.fromkeys(sent & reasons.keys(), NOT_KEPT) for reasons in given)
        return msgspec.structs.replace(answer, failed=failed, failed_and_unresolvable=unresolvable)

    def forget(self, extender: str, pod: Pod) -> None:
        """The extender is to be asked about the pod again."""
        self._known.pop((extender, pod.uid), None)

    async def _filter(
        self, extender: HTTPExtender, sent: ExtenderArgs, known: _Known, *, ahead: bool
    ) -> FilterAnswer:
        try:
            answer = await extender.filter(sent)
        except ExtenderError as error:
            self._observe(extender, len(sent.names), error)
            known.error = error if ahead else None
            raise
        self._observe(extender, len(sent.names), answer)
        return answer

    def _of(self, extender: HTTPExtender, pod: Pod) -> _Known:
        own = self._known.get((extender.name, pod.uid))
        if own is not None:
            return own
        key: Hashable = pod.uid
        if extender.config.answers_for_template and not extender.supports(Verb.GROUP):
            key = pod.namespace, pod.template
        return self._known.setdefault((extender.name, key), _Known())


def _raise(known: _Known, *, ahead: bool) -> None:
    error = known.error
    if error is None:
        return
    if not ahead:
        known.error = None
    raise error


def _unknown(names: list[str], known: AbstractSet[str]) -> list[str]:
    """The names that are not known; the same list if none is."""
    return [name for name in names if name not in known] if known else names


def _joined(known: Mapping[str, T], more: Mapping[str, T]) -> Mapping[str, T]:
    return {**known, **more} if known and more else known or more


def _joined_names(known: frozenset[str], more: frozenset[str]) -> frozenset[str]:
    return known | more if known and more else known or more
