"""Keeps what extenders answered about nodes during one cycle of a pod group, so that no question is asked twice.

A node that an extender was asked about is not sent again: the answer is that of the first call, also for another domain or
reprieve of the same cycle. Calls may be made ahead of a pod's turn; an error of such a call is raised when it is the pod's turn.
For an extender with ``answers_for_template`` the answers about one pod hold for all pods of the group with an equal spec.
An extender with a group verb is asked with that verb instead of filter and prioritize.
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np

from app.extender.client import HTTPExtender
from app.extender.config import Verb
from app.extender.errors import ExtenderError
from app.model.pod import Pod
from app.model.pod_groups import GroupKey
from app.state.columns.resources import Int64
from app.wire.extender_v1 import ExtenderArgs, FilterAnswer
from app.wire.group_v1 import GroupArgs, GroupQuestion

#: Called after each call of filter: the extender, the number of nodes sent, and the answer or the error.
Observe = Callable[[HTTPExtender, int, FilterAnswer | ExtenderError], None]


class _Known:
    """One extender's answers about one pod, or about one template."""

    def __init__(self) -> None:
        #: Held during a call: whoever needs the same answer waits for it.
        self.calling: Final = asyncio.Lock()
        self.asked: Final[set[str]] = set()
        self.kept: Final[set[str]] = set()
        self.failed: Final[dict[str, str]] = {}
        self.unresolvable: Final[dict[str, str]] = {}
        self.scores: Final[dict[str, int]] = {}
        self.retry_after: float | None = None
        #: The error of a call that was made ahead.
        self.error: ExtenderError | None = None

    def add(self, sent: Sequence[str], answer: FilterAnswer) -> None:
        self.asked.update(sent)
        self.kept.update(answer.kept)
        self.failed.update(answer.failed)
        self.unresolvable.update(answer.failed_and_unresolvable)
        if answer.retry_after is not None and len(answer.kept) != len(sent):
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
        observe: Observe = lambda _extender, _sent, _answer: None,
    ) -> None:
        """For a cycle of the group ``key``."""
        self._key: Final = key
        self._min_count: Final = min_count
        self._observe: Final = observe
        #: Extenders with a group verb that seem to reserve: they left one of several nodes, or the configuration says so.
        self._choosers: Final[set[str]] = set()
        #: Ignorable extenders whose group verb failed.
        self.skipped: Final[set[str]] = set()
        self._known: Final[dict[tuple[str, Hashable], _Known]] = {}

    async def filter(
        self, extender: HTTPExtender, args: ExtenderArgs, *, ahead: bool = False
    ) -> FilterAnswer:
        """As ``extender.filter``, which is called about the nodes that it was not asked about yet. Raises ExtenderError.

        ``ahead``: an error is kept and raised once more at the next call without it.
        """
        async with self._of(extender, args.pod).calling:
            known = self._of(extender, args.pod)
            _raise(known, ahead=ahead)
            sent = _unknown(args, known.asked)
            if sent is not None and extender.supports(Verb.GROUP):
                await self._ask_group(extender, [GroupQuestion([args.pod], sent.names)])
            elif sent is not None:
                answer = await self._filter(extender, sent, known, ahead=ahead)
                if extender.config.answers_for_template and 1 == len(answer.kept) < len(sent.names):
                    # It may have chosen this node for this pod: the pods with an equal spec are asked about on their own.
                    known = self._own(extender, args.pod, known)
                known.add(sent.names, answer)
        return known.about(args.names)

    async def prioritize(
        self, extender: HTTPExtender, args: ExtenderArgs, *, ahead: bool = False
    ) -> Int64:
        """As ``extender.prioritize``, in the same way. Raises ExtenderError."""
        async with self._of(extender, args.pod).calling:
            known = self._of(extender, args.pod)
            _raise(known, ahead=ahead)
            sent = _unknown(args, known.scores.keys())
            if sent is not None:
                try:
                    scores = await extender.prioritize(sent)
                except ExtenderError as error:
                    known.error = error if ahead else None
                    raise
                known.scores.update(zip(sent.names, scores.tolist(), strict=True))
            count = len(args.names)
            return np.fromiter(map(known.scores.__getitem__, args.names), np.int64, count)

    async def ask_group(self, extender: HTTPExtender, args: Sequence[ExtenderArgs]) -> None:
        """Calls the group verb for these pods and nodes, without those whose answer is known. Raises ExtenderError.

        An extender that may reserve for the group is asked about everything again.
        """
        reserves = extender.config.release_verb or extender.config.serial
        if reserves or extender.name in self._choosers:
            for each in args:
                self._known.pop((extender.name, each.pod.uid), None)
        members: dict[tuple[str, ...], GroupQuestion] = {}
        for each in args:
            sent = _unknown(each, self._group_answers(extender, each.pod).asked)
            if sent is not None:
                key = tuple(sent.names)
                members.setdefault(key, GroupQuestion([], sent.names)).pods.append(each.pod)
        await self._ask_group(extender, list(members.values()))

    async def _ask_group(self, extender: HTTPExtender, members: list[GroupQuestion]) -> None:
        for part in GroupArgs(self._key, self._min_count, members).parts():
            answer = await extender.group(part)
            for verdict in answer.verdicts:
                if 1 == len(verdict.kept) < len(verdict.sent):
                    self._choosers.add(extender.name)
                filtered = FilterAnswer(
                    failed=verdict.failed,
                    failed_and_unresolvable=verdict.failed_and_unresolvable,
                    kept=verdict.kept,
                    retry_after=answer.retry_after,
                )
                for pod in verdict.pods:
                    known = self._group_answers(extender, pod)
                    known.add(verdict.sent, filtered)
                    known.scores.update(dict.fromkeys(verdict.sent, 0))
                    known.scores.update(verdict.scores)

    def knows(self, extender: HTTPExtender, args: ExtenderArgs) -> bool:
        """Whether ``filter`` would call nothing."""
        return _unknown(args, self._of(extender, args.pod).asked) is None

    def _group_answers(self, extender: HTTPExtender, pod: Pod) -> _Known:
        return self._known.setdefault((extender.name, pod.uid), _Known())

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

    def _own(self, extender: HTTPExtender, pod: Pod, shared: _Known) -> _Known:
        """Answers about this pod alone, which begin with those about its template."""
        own = self._known[extender.name, pod.uid] = _Known()
        own.asked.update(shared.asked)
        own.kept.update(shared.kept)
        own.failed.update(shared.failed)
        own.unresolvable.update(shared.unresolvable)
        own.scores.update(shared.scores)
        own.retry_after = shared.retry_after
        return own


def _raise(known: _Known, *, ahead: bool) -> None:
    error = known.error
    if error is None:
        return
    if not ahead:
        known.error = None
    raise error


def _unknown(args: ExtenderArgs, known: AbstractSet[str]) -> ExtenderArgs | None:
    """The arguments with the names that are not known; None if all are."""
    if not known:
        return args
    if known >= set(args.names):
        return None
    return args.about([name for name in args.names if name not in known])
