"""Writes the status of pod groups, as a task beside the loop: one group at a time, the latest outcome of each."""

import logging
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from app.kube.errors import KubeError, NotFound
from app.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from app.kube.writer import KubeWriter
from app.model import pod_groups_v1alpha2
from app.model.clock import Clock
from app.model.pod_groups import AnyPodGroup, Condition, GroupKey, LabelledPodGroup, PodGroup
from app.model.timestamps import format_time
from app.runtime.tasks import Spawn
from app.state.pod_groups import PodGroups

log = logging.getLogger(__name__)

#: The outcome of a group's cycle, as the label of metrics.
GroupCycleResult = Literal["scheduled", "unschedulable", "waiting_on_preemption", "error"]

#: The phases of a group of scheduling.x-k8s.io before it is scheduled; later ones are its controller's.
_BEFORE: Final = frozenset({"", "Pending", "PreScheduling", "Scheduling"})
#: The condition of a group of scheduling.k8s.io.
_CONDITION: Final = "PodGroupInitiallyScheduled"
#: Groups whose status may wait to be written; further ones are left out, and written after their next cycle.
MAX_WAITING: Final = 10_000
#: So many names of groups that have gone may be kept.
_FEW: Final = 100


class _Outcome(NamedTuple):
    """The outcome of a cycle, of the group with this uid."""

    uid: str
    result: GroupCycleResult
    text: str


class _Written(msgspec.Struct, frozen=True):
    """What was written last to a group's status; the watch may not show it yet."""

    uid: str
    #: The version of the group that the watch showed before.
    before: str
    result: GroupCycleResult
    condition: Condition | None


class GroupStatusWriter:
    """Writes outcomes to the status of groups."""

    def __init__(self, groups: PodGroups, writer: KubeWriter, clock: Clock, spawn: Spawn) -> None:
        self._groups: Final = groups
        self._writer: Final = writer
        self._clock: Final = clock
        self._spawn: Final = spawn
        self._wanted: Final[dict[GroupKey, _Outcome]] = {}
        self._writing = False
        self._written: Final[dict[GroupKey, _Written]] = {}

    def put(self, key: GroupKey, result: GroupCycleResult, text: str, *, uid: str) -> None:
        """The outcome of a cycle of the group with this ``uid``; ``text`` says why it is not scheduled.

        A group that was scheduled stays so. Another group of the same name never gets the outcome.
        """
        waiting = self._wanted.get(key)
        if waiting is not None and (waiting.uid, waiting.result) == (uid, "scheduled"):
            return
        if waiting is not None or len(self._wanted) < MAX_WAITING:
            self._wanted[key] = _Outcome(uid, result, text)
        if not self._writing:
            self._writing = True
            self._spawn(self._write_all(), "status of pod groups")

    async def _write_all(self) -> None:
        try:
            while self._wanted:
                key = next(iter(self._wanted))
                await self._write(key, self._wanted.pop(key))
        finally:
            self._writing = False

    async def _write(self, key: GroupKey, outcome: _Outcome) -> None:
        group, path = self._groups.get(key), self._groups.path_of(key.kind)
        if group is None or group.uid != outcome.uid or not path:
            return
        _, result, text = outcome
        if isinstance(group, LabelledPodGroup):
            status, content_type = self._phase(key, group, result), MERGE_PATCH
        else:
            older = pod_groups_v1alpha2.is_served_at(path)
            type_ = pod_groups_v1alpha2.CONDITION if older else _CONDITION
            status = self._condition(key, type_, group, result, text)
            content_type = STRATEGIC_MERGE_PATCH
        written = self._written.get(key)
        ended = written is not None and (written.uid, written.result) == (group.uid, "scheduled")
        if not status or (ended and result != "scheduled"):
            return
        self._remember(key, group, result, status)
        try:
            await self._writer.patch_status(group, path, status, content_type)
        except NotFound:
            del self._written[key]
        except KubeError as error:
            del self._written[key]
            log.error("Cannot write the status of pod group %s: %s", group.key, error)

    def _remember(
        self, key: GroupKey, group: AnyPodGroup, result: GroupCycleResult, status: Mapping[str, Any]
    ) -> None:
        conditions = msgspec.convert(status.get("conditions", ()), tuple[Condition, ...])
        condition = conditions[0] if conditions else None
        self._written[key] = _Written(group.uid, group.resource_version, result, condition)
        if len(self._written) > 2 * self._groups.count + _FEW:
            for gone in [each for each in self._written if self._groups.get(each) is None]:
                del self._written[gone]

    def _phase(
        self, key: GroupKey, group: LabelledPodGroup, result: GroupCycleResult
    ) -> dict[str, Any]:
        if group.status.phase not in _BEFORE:
            return {}
        scheduled = len(self._groups.members(key).scheduled)
        phase = "Scheduled" if result == "scheduled" else "Scheduling"
        if group.status.phase == phase:
            return {}  # newer definitions have no "scheduled", which the API server then drops
        return {"phase": phase, "scheduled": scheduled}

    def _condition(
        self, key: GroupKey, type_: str, group: PodGroup, result: GroupCycleResult, text: str
    ) -> dict[str, Any]:
        reason = {"scheduled": "Scheduled", "error": "SchedulerError"}.get(result, "Unschedulable")
        value = "True" if result == "scheduled" else "False"
        old = next((c for c in group.status.conditions or () if c.type == type_), None)
        written = self._written.get(key)
        if written is not None and (written.uid, written.before) == (
            group.uid,
            group.resource_version,
        ):
            old = written.condition
        generation = group.metadata.generation
        if old is not None:
            same = (old.status, old.reason, old.message) == (value, reason, text)
            if same or (old.status == "True" and value == "False"):
                return {}
        kept = old.last_transition_time if old is not None and old.status == value else None
        condition = {
            "type": type_,
            "status": value,
            "reason": reason,
            "message": text,
            "observedGeneration": generation,
            "lastTransitionTime": kept or format_time(self._clock.wall()),
        }
        return {"conditions": [condition]}
