"""``--record``: writes what the scheduler is told and what it decides into files, beside the work (docs/replay.md).

All changes of the state go through SchedulerState, so its calls, in their order, are the story: RecordedState puts each
into a buffer. A thread compresses and writes the buffers. If the disk does not keep up or fails, records are dropped,
and the next ones go to a new file, which begins with a checkpoint; no pod waits.
"""

import contextlib
import logging
import queue
import threading
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from app.extender.events import CallFinished, ExtenderEvent, Sink
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction, EvictionProgress
from app.kube.client import Observer
from app.model.clock import Clock
from app.model.objects import Named, Node
from app.model.pod import LabelSet, Pod, PodTemplate
from app.model.pod_groups import GroupKey, LabelledPodGroup, PodGroup
from app.scheduler.trace import MAX_RECORD, SUFFIX, BlockWriter, Header, Op, PodRecord
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import Change, Command, Failure, SchedulerState

log = logging.getLogger(__name__)

#: Bytes of records in a block, and how many blocks may wait for the disk.
BLOCK_BYTES: Final = 256 << 10
MAX_WAITING: Final = 64
#: Bytes of a file after which the next one begins, and how many files are kept.
FILE_BYTES: Final = 64 << 20
MAX_FILES: Final = 32
#: Bytes of an extender's answer that are kept.
MAX_ANSWER: Final = 1 << 20
#: Lists of nodes that are known in a file.
MAX_LISTS: Final = 64
#: Seconds to write what is left at the end.
END_SECONDS: Final = 5.0

_pack: Final = msgspec.msgpack.Encoder().encode
_json: Final = msgspec.json.Encoder().encode


class Recorder:
    """Takes records from the event loop, and has them written by a thread."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        file_bytes: int = FILE_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        """Raises OSError if nothing can be written to the directory."""
        directory.mkdir(parents=True, exist_ok=True)
        self._directory: Final = directory
        self._clock: Final = clock
        self._file_bytes: Final = file_bytes
        self._max_files: Final = max_files
        taken = [int(p.stem) for p in directory.glob(f"*{SUFFIX}") if p.stem.isdecimal()]
        self._number = max(taken, default=0)
        #: Records dropped because the disk was full or slow.
        self.dropped = 0
        self._told_dropped = 0
        #: What the header says, and the state and generator of the checkpoints; set by ``begin``.
        self._header: Header | None = None
        self._state: SchedulerState | None = None
        self._rng: np.random.Generator | None = None
        self._buffer: list[bytes] = []
        self._size = 0
        self._templates: WeakKeyDictionary[PodTemplate, int] = WeakKeyDictionary()
        self._labels: WeakKeyDictionary[LabelSet, int] = WeakKeyDictionary()
        #: Lists of nodes that extenders were sent, the latest last.
        self._names: Final[dict[bytes, int]] = {}
        self._numbers = 0
        #: Whether the next record begins a file.
        self._begins = True
        self._blocks: Final[queue.Queue[_Block | None]] = queue.Queue(MAX_WAITING)
        #: Set by the thread: the file is large enough, or was lost.
        self._enough = False
        self._failed = ""
        self._complained = 0.0
        probe = directory / f".{SUFFIX[1:]}"
        probe.write_bytes(b"")
        probe.unlink()
        self._thread: Final = threading.Thread(target=self._write, name="recording", daemon=True)
        self._thread.start()

    def make_state(self, **parts: Any) -> "RecordedState":
        """A state whose calls are recorded, made as SchedulerState."""
        return RecordedState(self, **parts)

    def begin(self, header: Header, state: SchedulerState, rng: np.random.Generator) -> None:
        """Starts to record. ``rng``: from which decisions draw."""
        self._header, self._state, self._rng = header, state, rng

    def end(self) -> None:
        """Writes what is left; waits END_SECONDS at most."""
        self._hand_over()
        try:
            self._blocks.put(None, timeout=END_SECONDS)
        except queue.Full:
            return
        self._thread.join(END_SECONDS)

    # ------------------------------------------------------------ records

    def add(self, op: Op, *fields: Any) -> None:
        """Records something. Never raises, never waits."""
        if self.open():
            self.put(op, *fields)

    def put(self, op: Op, *fields: Any) -> None:
        """As ``add``, right after ``open``: into the file in which the templates of ``fields`` have their numbers."""
        self._put((op, *fields))
        self._hand_over_full()

    def open(self) -> bool:
        """Begins a file if it is time for that. False if nothing is recorded now."""
        if self._header is None:
            return False
        if self._enough and not self._begins:
            self._hand_over()
            self._begins = True
        if self._begins:
            if self._blocks.qsize() > MAX_WAITING // 2:
                self._drop(1)
                return False
            self._checkpoint()
        return True

    def pod(self, pod: Pod) -> PodRecord:
        """What is recorded of a pod."""
        return PodRecord(
            pod.namespace,
            pod.name,
            pod.uid,
            self._number_of(self._templates, pod.template, Op.TEMPLATE),
            self._number_of(self._labels, pod.labels, Op.LABELS),
            pod.resource_version,
            pod.generation,
            pod.deletion_timestamp,
            pod.leaves_at_once,
            pod.owner,
            pod.node_name,
            pod.pod_group_name,
            pod.nominated_node_name,
            pod.phase,
            pod.conditions,
            pod.start_time,
            pod.resized,
            pod.claim_statuses,
            pod.extended_claim_status,
        )

    def _number_of(self, known: WeakKeyDictionary[Any, int], value: Any, op: Op) -> int:
        """The number of a template or a set of labels, which is recorded first if it is new in this file."""
        number = known.get(value)
        if number is None:
            self._numbers += 1
            number = known[value] = self._numbers
            body = _json(value.spec) if op is Op.TEMPLATE else dict(value)
            self._put((op, number, body))
        return number

    def _put(self, record: object) -> None:
        try:
            packed = _pack(record)
        except (TypeError, OverflowError) as error:  # a number beyond 64 bits
            self._lose(f"a record cannot be encoded: {error}")
            return
        if len(packed) > MAX_RECORD:
            self._lose(f"a record has {len(packed)} bytes")
            return
        self._buffer.append(packed)
        self._size += len(packed)

    def _lose(self, why: str) -> None:
        """A record is missing: what follows goes to another file."""
        self._drop(1, why)
        self._enough = True

    # ------------------------------------------------------------ files

    def _checkpoint(self) -> None:
        """Begins a file with what the state holds now."""
        state, header = self._state, self._header
        assert state is not None  # noqa: S101 - set by ``begin``
        assert header is not None  # noqa: S101
        assert self._rng is not None  # noqa: S101
        self._begins, self._enough = False, False
        self._templates, self._labels = WeakKeyDictionary(), WeakKeyDictionary()
        self._names.clear()
        self._buffer, self._size = [], 0
        first = not state.pods and not state.table.size and not self._numbers
        gap, self._told_dropped = self.dropped != self._told_dropped, self.dropped
        groups = {kind.__name__: state.cluster.pod_groups.path_of(kind) for kind in self._groups()}
        began = self._clock.wall()
        self._put(msgspec.structs.replace(header, began=began, first=first, gap=gap, groups=groups))
        table = state.table
        self._put((Op.ROWS, list(table.names), list(table.free_rows)))
        self._hand_over(begins=True)
        for node in table.nodes:
            if node is not None:
                self._object(node)
        for lister in state.cluster.listers():
            for each in lister:
                self._object(each)
        for pod in state.pods.values():
            self._put((Op.POD, self.pod(pod)))
            self._hand_over_full()
        for assumed in state.cache.assumed_pods():
            self._put((Op.ASSUMED, assumed.uid, assumed.node_name))
        for pod, name in state.nominator.all_nominations():
            self._put((Op.NOMINATED, pod.uid, name))
        self._put((Op.CHECKPOINT, self._clock.steady(), _json(_plain(self._rng))))
        self._hand_over_full()

    def _groups(self) -> Iterable[type[PodGroup | LabelledPodGroup]]:
        """The kinds of pod groups that are watched."""
        assert self._state is not None  # noqa: S101 - set by ``begin``
        return self._state.cluster.pod_groups.kinds

    def _object(self, each: Named) -> None:
        self._put((Op.OBJECT, type(each).__name__, object_json(each)))
        self._hand_over_full()

    def _hand_over_full(self) -> None:
        if self._size >= BLOCK_BYTES:
            self._hand_over()

    def _hand_over(self, *, begins: bool = False) -> None:
        """Gives the buffer to the thread; drops it if too many wait."""
        if not self._buffer:
            return
        buffer, self._buffer, self._size = self._buffer, [], 0
        try:
            self._blocks.put_nowait(_Block(buffer, begins))
        except queue.Full:
            self._drop(len(buffer))
            self._begins = True

    def _drop(self, records: int, why: str = "") -> None:
        self.dropped += records
        now = self._clock.monotonic()
        if now - self._complained > 60.0 or not self._complained:
            self._complained = now
            reason = why or self._failed or "the disk does not keep up"
            log.warning("The recording has a gap (%d records so far): %s", self.dropped, reason)

    # ------------------------------------------------------------ the thread

    def _write(self) -> None:
        writer: BlockWriter | None = None
        while (block := self._blocks.get()) is not None:
            writer = self._write_block(writer, block)
            self._blocks.task_done()
        if writer is not None:
            with contextlib.suppress(OSError):
                writer.close()

    def _write_block(self, writer: BlockWriter | None, block: "_Block") -> BlockWriter | None:
        """Writes a block; returns the writer of the file that is open now, None if there is none."""
        try:
            if block.begins:
                if writer is not None:
                    writer.close()
                writer = self._next_file()
            if writer is None:
                self._enough = True  # the file was lost: the next record begins another
                return None
            writer.write(block.records)
            self._failed = ""
            if writer.size >= self._file_bytes:
                self._enough = True
        except Exception as error:  # noqa: BLE001 - a recording must not end the scheduler
            self._failed = str(error)
            self.dropped += len(block.records)
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.close()
            self._enough = True
            return None
        return writer

    def _next_file(self) -> BlockWriter:
        self._number += 1
        files = sorted(self._directory.glob(f"*{SUFFIX}"))
        for old in files[: max(0, len(files) - self._max_files + 1)]:
            old.unlink(missing_ok=True)
        return BlockWriter(self._directory / f"{self._number:08d}{SUFFIX}")

    # ------------------------------------------------------------ what went out

    def unfit(self, queued: QueuedPod, diagnosis: Diagnosis) -> None:
        """No node is feasible for a pod."""
        self.add(Op.UNFIT, queued.pod.uid, diagnosis.message())

    def rejected(self, queued: QueuedPod, message: str) -> None:
        """An attempt ended with an error, or in Reserve or Permit."""
        self.add(Op.REJECTED, queued.pod.uid, message)

    def evicting(self, eviction: Eviction) -> Eviction:
        """An eviction begins; returns it so that its progress is recorded, too."""
        victims = [victim.uid for victim in eviction.victims]
        self.add(Op.EVICT, eviction.uid, eviction.node_name, victims)
        progress = _Progress(eviction.progress, self)
        return msgspec.structs.replace(eviction, progress=progress)

    def extender_sink(self, sink: Sink) -> Sink:
        """Records calls, and passes all events on."""

        def on(event: ExtenderEvent) -> None:
            if isinstance(event, CallFinished):
                pod = "" if event.pod is None else event.pod.uid
                answer = event.answer if len(event.answer) <= MAX_ANSWER else b""
                self._call(event, pod, answer)
            sink(event)

        return on

    def _call(self, event: CallFinished, pod: str, answer: bytes) -> None:
        if not self.open():
            return
        self.put(
            Op.CALL,
            self._clock.steady(),
            event.extender,
            str(event.verb),
            pod,
            str(event.outcome),
            event.seconds,
            answer,
            0 if event.asked is None else self._number_of_names(event.asked.names_json),
            event.status,
            event.retry_after,
        )

    def _number_of_names(self, names: bytes) -> int:
        """The number of a list of nodes, as JSON, which is recorded first if it is none of this file's last ones."""
        number = self._names.pop(names, None)
        if number is None:
            self._numbers += 1
            number = self._numbers
            self._put((Op.NAMES, number, names))
            if len(self._names) >= MAX_LISTS:
                del self._names[next(iter(self._names))]
        self._names[names] = number
        return number

    def observer(self, observer: Observer) -> Observer:
        """Records requests to the API server (status 0: no answer), and passes them on."""

        def observe(method: str, status: int, seconds: float) -> None:
            self.add(Op.REQUEST, self._clock.steady(), method, status, seconds)
            observer(method, status, seconds)

        return observe


class _Block(msgspec.Struct, frozen=True):
    records: list[bytes]
    begins: bool


def object_json(each: Named) -> bytes:
    """An object of a kind but Pod, with the fields that are read."""
    if isinstance(each, Node) and each.raw is not None:
        each = msgspec.structs.replace(each, raw=None)
    return _json(each)


def _plain(rng: np.random.Generator) -> dict[str, Any]:
    """The state of a generator; its large numbers as texts."""
    state = dict(rng.bit_generator.state)
    state["state"] = {name: str(value) for name, value in state["state"].items()}
    return state


class _Progress:
    """Records the progress of an eviction (EvictionProgress)."""

    def __init__(self, progress: EvictionProgress, recorder: Recorder) -> None:
        self._progress: Final = progress
        self._recorder: Final = recorder
        self.waits_for: Final = progress.waits_for

    def begin(self, uid: str) -> None:
        self._recorder.add(Op.EVICTION, "begin", uid, "")
        self._progress.begin(uid)

    def last(self, uid: str, victim: Pod) -> None:
        self._recorder.add(Op.EVICTION, "last", uid, victim.uid)
        self._progress.last(uid, victim)

    def end(self, uid: str, *, evicted: bool) -> bool:
        self._recorder.add(Op.EVICTION, "end", uid, "evicted" if evicted else "")
        return self._progress.end(uid, evicted=evicted)

    def lapse(self, uid: str) -> None:
        self._recorder.add(Op.EVICTION, "lapse", uid, "")
        self._progress.lapse(uid)


class RecordedState(SchedulerState):
    """A SchedulerState that records its calls, in their order."""

    def __init__(self, recorder: Recorder, **parts: Any) -> None:
        super().__init__(**parts)
        self._recorder: Final = recorder
        self._record: Final[Callable[..., None]] = recorder.add

    def apply(self, change: Change, now: float) -> Sequence[Command]:
        kind, _, new = change
        if new is None:
            if change.old is not None:
                self._record(Op.DELETED, now, kind.__name__, change.old.key)
        elif kind is Pod:
            if self._recorder.open():
                self._recorder.put(Op.POD_CHANGED, now, self._recorder.pod(new))
        else:
            self._record(Op.CHANGED, now, kind.__name__, object_json(new))
        return super().apply(change, now)

    def apply_new(self, kind: type, objects: Mapping[str, Any], now: float) -> Sequence[Command]:
        if self._recorder.open():
            if kind is Pod:
                pods = [self._recorder.pod(pod) for pod in objects.values()]
                self._recorder.put(Op.LISTED_PODS, now, pods)
            else:
                texts = [object_json(each) for each in objects.values()]
                self._recorder.put(Op.LISTED, now, kind.__name__, texts)
        return super().apply_new(kind, objects, now)

    def flush(self, now: float) -> int:
        self._record(Op.FLUSH, now)
        return super().flush(now)

    def activate(self, pods: Iterable[Pod], now: float) -> int:
        pods = tuple(pods)
        self._record(Op.ACTIVATE, now, [pod.uid for pod in pods])
        return super().activate(pods, now)

    def refresh_lanes(self, namespace: str) -> None:
        self._record(Op.REFRESH_LANES, namespace)
        super().refresh_lanes(namespace)

    def pop(self, now: float, admits: Admits | None = None) -> QueuedPod | None:
        queued = super().pop(now, admits)
        if queued is not None:
            self._record(Op.POP, now, queued.pod.uid, bool(queued.lane))
        return queued

    def pop_group(self, group: GroupKey, now: float) -> list[QueuedPod]:
        popped = super().pop_group(group, now)
        self._record(Op.POP_GROUP, now, [queued.pod.uid for queued in popped])
        return popped

    def assume(self, pod: Pod, node_name: str) -> Pod:
        assumed = super().assume(pod, node_name)
        self._record(Op.ASSUME, pod.uid, node_name)
        return assumed

    def forget(self, assumed: Pod) -> Pod:
        self._record(Op.FORGET, assumed.uid)
        return super().forget(assumed)

    def freed(self, assumed: Pod, now: float, *, but: Collection[str] = ()) -> None:
        if self._recorder.open():
            self._recorder.put(Op.FREED, now, self._recorder.pod(assumed), list(but))
        super().freed(assumed, now, but=but)

    def unscheduled_pod_gone(self, pod: Pod, now: float, *, among: Container[str]) -> None:
        if self._recorder.open():
            uids = list(among) if isinstance(among, Iterable) else []
            self._recorder.put(Op.GONE, now, self._recorder.pod(pod), uids)
        super().unscheduled_pod_gone(pod, now, among=among)

    def finish_binding(self, uid: str) -> None:
        self._record(Op.BOUND, uid)
        super().finish_binding(uid)

    def done(self, uid: str) -> None:
        self._record(Op.DONE, uid)
        super().done(uid)

    def drop(self, pod: Pod) -> None:
        self._record(Op.DROP, pod.uid)
        super().drop(pod)

    def fail(self, queued: QueuedPod, now: float, *, nominated_node: str | None) -> Failure:
        plugins, pending = sorted(queued.unschedulable_plugins), sorted(queued.pending_plugins)
        self._record(Op.FAIL, now, queued.pod.uid, nominated_node, plugins, pending)
        return super().fail(queued, now, nominated_node=nominated_node)
