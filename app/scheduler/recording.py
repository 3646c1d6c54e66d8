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
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec
import numpy as np

from app.extender.events import CallFinished, ExtenderEvent, Sink
from app.framework.diagnosis import Diagnosis
from app.framework.handle import Eviction, EvictionProgress
from app.kube.client import Observer
from app.model.clock import Clock
from app.model.objects import Named, Node
from app.model.pod import Pod
from app.model.pod_groups import GroupKey, LabelledPodGroup, PodGroup
from app.scheduler.trace import (
    MAX_GROUP,
    MAX_RECORD,
    SUFFIX,
    BlockWriter,
    Header,
    Op,
    TraceError,
    files_of,
    read_records,
    records_in,
    records_of,
)
from app.state.queue.active_queue import Admits
from app.state.queue.queued_pod import QueuedPod
from app.state.scheduler_state import Change, Command, Failure, SchedulerState

if TYPE_CHECKING:
    from app.scheduler.redaction import Redactor

log = logging.getLogger(__name__)

#: Values of records that are encoded together, about, and bytes of a record from which it is encoded alone.
GROUP_VALUES: Final = 1024
ALONE_BYTES: Final = 4 << 10
#: Bytes of records in a block, about, and how many blocks may wait for the disk.
BLOCK_BYTES: Final = 1 << 20
#: Bytes of a pod in a list, about.
_POD_BYTES: Final = 128
#: Bytes of a label, at most: a prefix of 253, a name and a value of 63 each.
_LABEL_BYTES: Final = 400
#: Bytes of the objects in a record of a list, about; a longer list has several.
LIST_BYTES: Final = 1 << 20
MAX_WAITING: Final = 16
#: Bytes of a file after which the next one begins, and how many files are kept.
FILE_BYTES: Final = 64 << 20
MAX_FILES: Final = 32
#: Bytes of an extender's answer that are kept.
MAX_ANSWER: Final = 1 << 20
#: Lists of nodes that are known in a file.
MAX_LISTS: Final = 64
#: Templates, and sets of labels, whose number in a file is known; then all are forgotten. Weak references, which do not
#: keep those whose pods have gone, cost 4 % of the throughput where each pod has labels of its own.
MAX_KNOWN: Final = 4096
#: Bytes of them as JSON, about, above which they are forgotten as well: pods that have gone must keep little.
MAX_KNOWN_BYTES: Final = 4 << 20
#: Seconds to write what is left at the end.
END_SECONDS: Final = 5.0

#: As plain texts, which are encoded faster.
_ACTIVATE: Final = Op.ACTIVATE.value
_ASSUME: Final = Op.ASSUME.value
_BOUND: Final = Op.BOUND.value
_CHANGED: Final = Op.CHANGED.value
_DONE: Final = Op.DONE.value
_DROP: Final = Op.DROP.value
_FAIL: Final = Op.FAIL.value
_FLUSH: Final = Op.FLUSH.value
_FORGET: Final = Op.FORGET.value
_LABELS: Final = Op.LABELS.value
_POD_BOUND: Final = Op.POD_BOUND.value
_POD_CHANGED: Final = Op.POD_CHANGED.value
_POP: Final = Op.POP.value
_POP_GROUP: Final = Op.POP_GROUP.value
_REFRESH_LANES: Final = Op.REFRESH_LANES.value
_REQUEST: Final = Op.REQUEST.value
_TEMPLATE: Final = Op.TEMPLATE.value
_pack: Final = msgspec.msgpack.Encoder().encode
_json: Final = msgspec.json.Encoder().encode

#: Objects with their numbers, by id.
_Numbers = dict[int, tuple[Any, int]]


class Recorder:
    """Takes records from the event loop, and has them written by a thread."""

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        *,
        secret: str = "",
        file_bytes: int = FILE_BYTES,
        max_files: int = MAX_FILES,
    ) -> None:
        """``secret``: the key with which names are hidden; empty: they are not.

        Raises OSError if nothing can be written to the directory.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._directory: Final = directory
        self._clock: Final = clock
        self._redactor: Final = _redactor(secret) if secret else None
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
        #: Records that were not encoded yet (see records_in).
        self.group: Final[list[Any]] = []
        #: Adds a record, a tuple, without a look whether anything is recorded now: ``add`` and ``open`` do that.
        self.append: Final = self.group.append
        #: The same for one that needs no array of its own: its values are encoded faster without one.
        self.extend: Final = self.group.extend
        #: Those that were not handed over yet.
        self._buffer: list[bytes] = []
        self._size = 0
        self._templates: _Numbers = {}
        self._labels: _Numbers = {}
        self._known_bytes = 0
        #: Uids of pods whose decisions draw from the generator and are not repeated; None: one of them has ended since.
        self.elsewhere: Final[set[str | None]] = set()
        #: Lists of nodes that extenders were sent, the latest last.
        self._names: Final[dict[bytes, int]] = {}
        self._numbers = 0
        #: Whether the next record begins a file.
        self._begins = True
        #: Whether a record can be added to the file that is open; the thread says if that is large enough, or was lost.
        self.ready = False
        self._blocks: Final[queue.Queue[_Block | Written | None]] = queue.Queue(MAX_WAITING)
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

    def mark(self) -> "Written":
        """Has what was recorded so far written; the mark says when that is done."""
        self._hand_over()
        mark = Written()
        try:
            self._blocks.put_nowait(mark)
        except queue.Full:
            mark.reached.set()
        return mark

    def latest(self, mark: "Written", since: float) -> list[tuple[BinaryIO, int]]:
        """The files that have what was recorded since a time, the oldest first, each with its bytes up to the mark.

        Waits for the disk. Raises TraceError, OSError.
        """
        if not mark.reached.wait(END_SECONDS) or mark.path is None:
            raise TraceError("the disk does not keep up, or is full")
        found: list[tuple[BinaryIO, int]] = []
        size, whole = mark.size, [path for path in files_of(self._directory) if path <= mark.path]
        with contextlib.ExitStack() as opened:
            for path in reversed(whole):
                try:
                    file = opened.enter_context(path.open("rb"))
                    began = next(read_records(path))[0].began
                except (FileNotFoundError, TraceError, StopIteration):  # an old file, which goes
                    break
                found.insert(0, (file, size or path.stat().st_size))
                size = 0
                if began <= since:
                    break
            opened.pop_all()
        return found

    def end(self) -> None:
        """Writes what is left; waits END_SECONDS at most."""
        self._hand_over()
        if self.dropped != self._told_dropped and self._blocks.qsize() <= MAX_WAITING // 2:
            self.open()  # what was dropped at the end shows as a gap
            self._hand_over()
        try:
            self._blocks.put(None, timeout=END_SECONDS)
        except queue.Full:
            return
        self._thread.join(END_SECONDS)

    # ------------------------------------------------------------ records

    def add(self, *record: Any) -> None:
        """Records something small: an Op and fields that do not change later. Never raises, never waits."""
        if self.ready or self.open():
            self._note(record)

    def _note(self, record: Any) -> None:
        """As ``add``, right after ``open``."""
        group = self.group
        group.append(record)
        if len(group) >= GROUP_VALUES:
            self.gather()

    def put(self, *record: Any) -> None:
        """Records something of any size right after ``open``: into the file in which templates have their numbers."""
        packed = self._packed(record)
        if packed is None:
            return
        if len(packed) >= ALONE_BYTES:
            self.gather()
            self._keep(packed)
            return
        self._note(msgspec.Raw(packed))

    def _note_sized(self, record: Any, size: int) -> None:
        """As ``_note``; alone if it has so many bytes, about, as records that are encoded together must not have."""
        if size < ALONE_BYTES:
            self._note(record)
        else:
            self.put(*record)

    def _packed(self, record: Any) -> bytes | None:
        """A record as it is written; None if it is lost."""
        try:
            packed = _pack(record)
        except (TypeError, ValueError, OverflowError) as error:  # a number beyond 64 bits
            self._lose(f"a record cannot be encoded: {error}")
            return None
        if len(packed) > MAX_RECORD:
            self._lose(f"a record has {len(packed)} bytes")
            return None
        return packed

    def gather(self) -> None:
        """Encodes the records that were added, at once; each alone if that fails."""
        group = self.group
        if not group:
            return
        try:
            packed = _pack((0, group))
        except (TypeError, ValueError, OverflowError):
            packed = b""
        if 0 < len(packed) <= MAX_GROUP:
            group.clear()
            self._keep(packed)
            return
        records = list(records_in(group))
        group.clear()
        for number, record in enumerate(records, 1):
            alone = self._packed(record)
            if alone is None:
                self._drop(len(records) - number)
                return
            self._keep(alone)

    def _keep(self, packed: bytes) -> None:
        """Keeps encoded records for the thread."""
        self._buffer.append(packed)
        self._size += len(packed)
        if self._size >= BLOCK_BYTES:
            self._hand_over()

    def _lose(self, why: str) -> None:
        """A record is missing: what follows goes to another file."""
        self._drop(1, why)
        self.ready = False

    def open(self) -> bool:
        """Begins a file if it is time for that. False if nothing is recorded now."""
        if self.ready:
            return True
        if self._header is None:
            self.group.clear()
            return False
        if not self._begins:  # the file is large enough
            self._hand_over()
            self._begins = True
        if self._blocks.qsize() > MAX_WAITING // 2:
            self._drop(len(list(records_in(self.group))) + 1)
            self.group.clear()
            return False
        self._checkpoint()
        return self.ready

    def pod(self, pod: Pod) -> tuple[Any, ...]:
        """What is recorded of a pod: a PodRecord."""
        template, labels = pod.template, pod.labels
        known, same = self._templates.get(id(template)), self._labels.get(id(labels))
        if known is None:
            spec = template.text or _json(template.spec)
            known = self._numbered(self._templates, template, len(spec))
            self._note_sized((_TEMPLATE, known[1], spec), len(spec))
        if same is None:
            size = len(labels) * _LABEL_BYTES
            same = self._numbered(self._labels, labels, size)
            self._note_sized((_LABELS, same[1], labels), size)
        return (
            pod.namespace,
            pod.name,
            pod.uid,
            known[1],
            same[1],
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

    def _numbered(self, known: _Numbers, value: Any, size: int) -> tuple[Any, int]:
        """Numbers an object of ``size`` bytes that has no number in this file."""
        self._numbers += 1
        self._known_bytes += size
        if len(known) >= MAX_KNOWN or self._known_bytes > MAX_KNOWN_BYTES:
            self._templates.clear()  # those that are still in use are recorded once more
            self._labels.clear()
            self._known_bytes = size
        known[id(value)] = made = value, self._numbers
        return made

    def listed(self, op: str, now: float, kind: tuple[str, ...], items: Iterable[Any]) -> None:
        """Records a list: of JSON, or of pods. ``kind``: the fields before the items."""
        if not self.open():
            return
        part: list[Any] = []
        size = 0
        for item in items:
            if size >= LIST_BYTES:
                self.put(op, now, *kind, part, True)
                part, size = [], 0
            part.append(item)
            size += len(item) if type(item) is bytes else _POD_BYTES
        self.put(op, now, *kind, part, False)

    # ------------------------------------------------------------ files

    def _checkpoint(self) -> None:
        """Begins a file with what the state holds now."""
        state, header = self._state, self._header
        assert state is not None  # noqa: S101 - set by ``begin``
        assert header is not None  # noqa: S101
        assert self._rng is not None  # noqa: S101
        self._begins, self.ready = False, True
        self._templates, self._labels, self._known_bytes = {}, {}, 0
        self._names.clear()
        self.group.clear()
        self._buffer, self._size = [], 0
        first = not state.pods and not state.table.size and not self._numbers
        gap, self._told_dropped = self.dropped != self._told_dropped, self.dropped
        groups = {kind.__name__: state.cluster.pod_groups.path_of(kind) for kind in self._groups()}
        began = self._clock.wall()
        now = msgspec.structs.replace(header, began=began, first=first, gap=gap, groups=groups)
        self._hand_over(header=now)
        table = state.table
        self.put(Op.ROWS.value, list(table.names), list(table.free_rows))
        for node in table.nodes:
            if node is not None:
                self._object(node)
        for lister in state.cluster.listers():
            for each in lister:
                self._object(each)
        for pod in state.pods.values():
            self._note((Op.POD.value, self.pod(pod)))
        for assumed in state.cache.assumed_pods():
            self._note((Op.ASSUMED.value, assumed.uid, assumed.node_name))
        for pod, name in state.nominator.all_nominations():
            self._note((Op.NOMINATED.value, pod.uid, name))
        self.put(Op.CHECKPOINT.value, self._clock.steady(), _json(_plain(self._rng)))

    def _groups(self) -> Iterable[type[PodGroup | LabelledPodGroup]]:
        """The kinds of pod groups that are watched."""
        assert self._state is not None  # noqa: S101 - set by ``begin``
        return self._state.cluster.pod_groups.kinds

    def _object(self, each: Named) -> None:
        self.put(Op.OBJECT.value, type(each).__name__, object_json(each))

    def _hand_over(self, *, header: Header | None = None) -> None:
        """Gives the buffer to the thread, or a header, with which a file begins; drops it if too many wait."""
        self.gather()
        if header is None and not self._buffer:
            return
        records = self._buffer
        self._buffer, self._size = [], 0
        if header is not None:
            records = [_pack(header)]
        try:
            self._blocks.put_nowait(_Block(records, header is not None))
        except queue.Full:
            self._drop(_count(records))
            self.ready, self._begins = False, True

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
            if isinstance(block, Written):
                if writer is not None:
                    block.path, block.size = writer.path, writer.size
                block.reached.set()
            else:
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
                self.ready = False  # the file was lost: the next record begins another
                return None
            records = block.records
            if self._redactor is not None:
                records = [self._redactor.encoded(each) for each in records]
            writer.write(records)
            self._failed = ""
            if writer.size >= self._file_bytes:
                self.ready = False
        except Exception as error:  # noqa: BLE001 - a recording must not end the scheduler
            self._failed = str(error)
            self.dropped += _count(block.records)
            if writer is not None:
                with contextlib.suppress(OSError):
                    writer.close()
            self.ready = False
            return None
        return writer

    def _next_file(self) -> BlockWriter:
        self._number += 1
        files = sorted(self._directory.glob(f"*{SUFFIX}"))
        for old in files[: max(0, len(files) - self._max_files + 1)]:
            old.unlink(missing_ok=True)
        return BlockWriter(self._directory / f"{self._number:08d}{SUFFIX}")

    # ------------------------------------------------------------ what came in

    def changed(self, change: Change, now: float) -> None:
        """A change of an object."""
        kind, old, new = change
        if not (self.ready or self.open()):
            return
        if new is None:
            if old is not None:
                self._note((Op.DELETED.value, now, kind.__name__, old.key))
        elif kind is Pod:
            self._note((_POD_CHANGED, now, self.pod(new)))
        else:
            text = object_json(new)
            self._note_sized((_CHANGED, now, kind.__name__, text), len(text))

    def came(self, kind: type, objects: Mapping[str, Any], now: float) -> None:
        """A list of objects that were unknown before."""
        values = objects.values()
        if kind is Pod:
            self.listed(Op.LISTED_PODS.value, now, (), map(self.pod, values))
        else:
            self.listed(Op.LISTED.value, now, (kind.__name__,), map(object_json, values))

    # ------------------------------------------------------------ what went out

    def unfit(self, queued: QueuedPod, diagnosis: Diagnosis) -> None:
        """No node is feasible for a pod."""
        message = diagnosis.message()
        if queued.lane:
            self.draws_elsewhere((queued.pod.uid,))
        if self.open():
            self.put(Op.UNFIT.value, queued.pod.uid, message)

    def rejected(self, queued: QueuedPod, message: str) -> None:
        """An attempt ended with an error, or in Reserve or Permit."""
        if self.open():
            self.put(Op.REJECTED.value, queued.pod.uid, message)

    def draws_elsewhere(self, uids: Iterable[str]) -> None:
        """Decisions about these pods, which a replay does not make once more, draw from the same generator from now
        on."""
        self.elsewhere.update(uids)

    def draws_no_more(self, uid: str) -> None:
        """The decision about a pod has ended."""
        if uid in self.elsewhere:
            self.elsewhere.discard(uid)
            self.elsewhere.add(None)

    def before_drawing(self) -> None:
        """A decision that a replay makes once more is next: the generator is recorded if others have drawn from it."""
        if self.elsewhere and self.open():
            self.elsewhere.discard(None)
            assert self._rng is not None  # noqa: S101 - set by ``begin``
            self.put(Op.RANDOM.value, _json(_plain(self._rng)))

    def evicting(self, eviction: Eviction) -> Eviction:
        """An eviction begins; returns it so that its progress is recorded, too."""
        victims = [victim.uid for victim in eviction.victims]
        self.add(Op.EVICT.value, eviction.uid, eviction.node_name, victims)
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
            Op.CALL.value,
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
            self.put(Op.NAMES.value, number, names)
            if len(self._names) >= MAX_LISTS:
                del self._names[next(iter(self._names))]
        self._names[names] = number
        return number

    def observer(self, observer: Observer) -> Observer:
        """Records requests to the API server (status 0: no answer), and passes them on."""

        clock, group, extend = self._clock, self.group, self.extend
        # A function of C, unlike ``steady``.
        now, ahead = clock.monotonic, clock.steady() - clock.monotonic()

        def observe(method: str, status: int, seconds: float) -> None:
            extend((_REQUEST, ahead + now(), method, status, seconds))
            if len(group) >= GROUP_VALUES:
                self.gather()
            observer(method, status, seconds)

        return observe


def _redactor(secret: str) -> "Redactor":
    from app.scheduler.redaction import Redactor  # noqa: PLC0415 - few recordings need it

    return Redactor(secret.encode()[:64])


class Written:
    """A place in a recording: how far a file is written; no path if nothing is."""

    def __init__(self) -> None:
        self.reached: Final = threading.Event()
        self.path: Path | None = None
        self.size = 0


class _Block(msgspec.Struct, frozen=True):
    records: list[bytes]
    begins: bool


def _count(values: Iterable[bytes]) -> int:
    """How many records these are; a header counts as one."""
    decoded = map(msgspec.msgpack.decode, values)
    return sum(1 if type(each) is dict else len(list(records_of(each))) for each in decoded)


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


def _only_bound(old: Pod, new: Pod) -> bool:
    """Whether a version of a pod differs from the one before in its node only, as far as it is recorded. Decoders share
    what seldom differs: what is equal and not the same may count as different."""
    return (
        not old.node_name
        and new.uid == old.uid
        and new.template is old.template
        and new.labels is old.labels
        and new.generation == old.generation
        and new.deletion_timestamp is old.deletion_timestamp
        and new.leaves_at_once is old.leaves_at_once
        and new.owner is old.owner
        and new.pod_group_name == old.pod_group_name
        and new.nominated_node_name == old.nominated_node_name
        and new.phase == old.phase
        and new.conditions is old.conditions
        and new.start_time is old.start_time
        and new.resized is old.resized
        and new.claim_statuses is old.claim_statuses
        and new.extended_claim_status is old.extended_claim_status
    )


class _Progress:
    """Records the progress of an eviction (EvictionProgress)."""

    def __init__(self, progress: EvictionProgress, recorder: Recorder) -> None:
        self._progress: Final = progress
        self._recorder: Final = recorder
        self.waits_for: Final = progress.waits_for

    def begin(self, uid: str) -> None:
        self._recorder.add(Op.EVICTION.value, "begin", uid, "")
        self._progress.begin(uid)

    def last(self, uid: str, victim: Pod) -> None:
        self._recorder.add(Op.EVICTION.value, "last", uid, victim.uid)
        self._progress.last(uid, victim)

    def end(self, uid: str, *, evicted: bool) -> bool:
        self._recorder.add(Op.EVICTION.value, "end", uid, "evicted" if evicted else "")
        return self._progress.end(uid, evicted=evicted)

    def lapse(self, uid: str) -> None:
        self._recorder.add(Op.EVICTION.value, "lapse", uid, "")
        self._progress.lapse(uid)


class RecordedState(SchedulerState):
    """A SchedulerState that records its calls, in their order."""

    def __init__(self, recorder: Recorder, **parts: Any) -> None:
        super().__init__(**parts)
        self._recorder: Final = recorder
        self._record: Final[Callable[..., None]] = recorder.add
        self._append: Final = recorder.append
        self._extend: Final = recorder.extend
        self._group: Final = recorder.group
        self._elsewhere: Final = recorder.elsewhere
        self._counted_in: Final = self.cluster.pod_groups.counted_in

    # What each pod passes calls SchedulerState by name and appends: a third of the cost of super() and ``add``.

    def apply(self, change: Change, now: float) -> Sequence[Command]:
        recorder = self._recorder
        kind, old, new = change
        if new is not None and kind is Pod and recorder.ready:
            if old is not None and new.node_name and not self._refused and _only_bound(old, new):
                self._extend((_POD_BOUND, now, new.uid, new.node_name, new.resource_version))
            else:
                self._append((_POD_CHANGED, now, recorder.pod(new)))
            if len(self._group) >= GROUP_VALUES:
                recorder.gather()
        else:
            recorder.changed(change, now)
        return SchedulerState.apply(self, change, now)

    def pop(self, now: float, admits: Admits | None = None) -> QueuedPod | None:
        queued = SchedulerState.pop(self, now, admits)
        if queued is not None:
            pod, elsewhere = queued.pod, bool(queued.lane)
            if self._counted_in or self._elsewhere:
                elsewhere = self._decided_elsewhere(pod, asks=elsewhere)
            self._extend((_POP, now, pod.uid, elsewhere))
        return queued

    def _decided_elsewhere(self, pod: Pod, *, asks: bool) -> bool:
        """Whether a replay does not repeat the decision about a pod, which belongs to a group or ``asks`` an extender;
        if it does, what it draws is next."""
        if self.cluster.pod_groups.key_of(pod) is not None:
            self._elsewhere.add(pod.uid)
            return True
        if not asks:
            self._recorder.before_drawing()
        return asks

    def assume(self, pod: Pod, node_name: str) -> Pod:
        assumed = SchedulerState.assume(self, pod, node_name)
        self._extend((_ASSUME, pod.uid, node_name))
        return assumed

    def finish_binding(self, uid: str) -> None:
        self._extend((_BOUND, uid))
        SchedulerState.finish_binding(self, uid)

    def done(self, uid: str) -> None:
        if self._elsewhere:
            self._recorder.draws_no_more(uid)
        self._extend((_DONE, uid))
        SchedulerState.done(self, uid)

    def apply_new(self, kind: type, objects: Mapping[str, Any], now: float) -> Sequence[Command]:
        self._recorder.came(kind, objects, now)
        return super().apply_new(kind, objects, now)

    def flush(self, now: float) -> int:
        self._record(_FLUSH, now)
        return super().flush(now)

    def activate(self, pods: Iterable[Pod], now: float) -> int:
        pods = tuple(pods)
        self._record(_ACTIVATE, now, [pod.uid for pod in pods])
        return super().activate(pods, now)

    def refresh_lanes(self, namespace: str) -> None:
        self._record(_REFRESH_LANES, namespace)
        super().refresh_lanes(namespace)

    def pop_group(self, group: GroupKey, now: float) -> list[QueuedPod]:
        popped = super().pop_group(group, now)
        uids = [queued.pod.uid for queued in popped]
        self._elsewhere.update(uids)
        self._record(_POP_GROUP, now, uids)
        return popped

    def forget(self, assumed: Pod) -> Pod:
        self._record(_FORGET, assumed.uid)
        return super().forget(assumed)

    def freed(self, assumed: Pod, now: float, *, but: Collection[str] = ()) -> None:
        if self._recorder.open():
            pod = self._recorder.pod(assumed)
            self._recorder.put(Op.FREED.value, now, pod, list(but))
        super().freed(assumed, now, but=but)

    def unscheduled_pod_gone(self, pod: Pod, now: float, *, among: Container[str]) -> None:
        if self._recorder.open():
            uids = list(among) if isinstance(among, Iterable) else []
            fields = self._recorder.pod(pod), uids
            self._recorder.put(Op.GONE.value, now, *fields)
        super().unscheduled_pod_gone(pod, now, among=among)

    def drop(self, pod: Pod) -> None:
        self._recorder.draws_no_more(pod.uid)
        self._record(_DROP, pod.uid)
        super().drop(pod)

    def fail(self, queued: QueuedPod, now: float, *, nominated_node: str | None) -> Failure:
        self._recorder.draws_no_more(queued.pod.uid)
        plugins, pending = sorted(queued.unschedulable_plugins), sorted(queued.pending_plugins)
        self._record(_FAIL, now, queued.pod.uid, nominated_node, plugins, pending)
        return super().fail(queued, now, nominated_node=nominated_node)
