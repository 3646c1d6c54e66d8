"""Recordings of simulated histories: they replay as recorded, in part and as a whole, and damaged ones say so."""

import contextlib
import functools
import itertools
import random
import struct
import threading
import tracemalloc
import weakref
import zlib

import msgspec
import numpy as np
import pytest
import zstandard
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from app.cli.replay import command
from app.model.objects import OwnerReference, PodCondition, PodResourceClaimStatus, PodSpec
from app.model.pod import LabelSet, Pod, PodTemplate, make_pod
from app.plugins import registry
from app.scheduler import recording, trace
from app.scheduler.options import RunOptions
from app.scheduler.recording import Recorder
from app.scheduler.trace import (
    MAGIC,
    BlockWriter,
    Op,
    TraceError,
    files_of,
    read_records,
    records_of,
)
from app.tools.replay.run import replay
from app.tools.replay.story import read_story
from tests.core.scheduler.full_state import CONFIG, FullState
from tests.histories import history
from tests.histories.playing import play

CLASSES = registry.registry(())
#: Histories with plain pods, preemption, volumes, extenders, gangs and restarts.
SEEDS = (1, 2, 3, 8, 17)


def again(folder, most=1):
    return replay(folder, CLASSES, most=most, look=lambda _: None)


class WrittenAtOnce(Recorder):
    """Waits until each block is written, so that where a file ends does not depend on the speed of the thread."""

    def _hand_over(self, **options):
        super()._hand_over(**options)
        self._blocks.join()


def recorded(base, seeds, monkeypatch, **limits):
    """Plays histories; a folder for each life of each process."""
    folders = (base / f"{number:03}" for number in itertools.count())
    monkeypatch.setattr(history, "RunOptions", lambda **o: RunOptions(record=next(folders), **o))
    monkeypatch.setattr(recording, "Recorder", functools.partial(WrittenAtOnce, **limits))
    assert not [outcome.violations for outcome in play(seeds) if outcome.violations]
    return [folder for folder in sorted(base.iterdir()) if list(folder.glob("*.aktrace"))]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        return recorded(tmp_path_factory.mktemp("histories"), SEEDS, patch)


@pytest.fixture(scope="module")
def largest(folders):
    """The recording with the most decisions that are repeated."""
    return max(folders, key=lambda folder: again(folder).decisions)


def test_every_decision_is_as_recorded_twice(folders):
    results = [again(folder) for folder in folders]
    assert [(r.differences, r.incomplete, r.gaps) for r in results] == [([], "", 0)] * len(folders)
    assert sum(result.decisions for result in results) > 20
    assert sum(result.adopted for result in results) > 5
    assert sum(result.records.get("POD_BOUND", 0) for result in results) > 10
    assert [again(folder).hash for folder in folders] == [result.hash for result in results]


def test_files_of_bounded_size_can_be_read_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "BLOCK_BYTES", 2000)
    monkeypatch.setattr(recording, "GROUP_VALUES", 20)
    folders = recorded(tmp_path, SEEDS[:3], monkeypatch, file_bytes=3000, max_files=5)
    several = [folder for folder in folders if len(files_of(folder)) > 2]
    assert several
    assert all(len(files_of(folder)) <= 5 for folder in folders)
    for folder in several:
        assert (again(folder).differences, again(folder).incomplete) == ([], "")
        for file in files_of(folder)[1:]:
            assert (again(file).differences, again(file).incomplete) == ([], "")


@pytest.mark.parametrize("limit", ["MAX_KNOWN", "MAX_KNOWN_BYTES"])
def test_what_is_recorded_once_more_is_the_same(limit, folders, tmp_path, monkeypatch):
    """Templates and labels whose numbers were forgotten."""
    monkeypatch.setattr(recording, limit, 1)
    several = recorded(tmp_path, SEEDS, monkeypatch)
    results, before = ([again(folder) for folder in each] for each in (several, folders))
    assert [result.hash for result in results] == [result.hash for result in before]
    assert [(r.differences, r.incomplete) for r in results] == [([], "")] * len(several)
    labels, once = (sum(r.records["LABELS"] for r in each) for each in (results, before))
    assert labels > once


# ---------------------------------------------------------------- differences


def rewritten(source, target, change):
    """A copy of a recording in which ``change`` has changed the records."""
    target.mkdir()
    for file in files_of(source):
        writer = BlockWriter(target / file.name)
        records = list(read_records(file))
        header = msgspec.msgpack.encode(records[0][0])
        changed = [record for record in map(change, records[1:]) if record is not None]
        writer.write([header, *(msgspec.msgpack.encode(record) for record in changed)])
        writer.close()
    return target


def test_the_first_decision_that_differs_is_named(largest, tmp_path):
    """As if the scheduler had chosen another node than it would now."""
    seen = []

    def change(record):
        if record[0] == Op.ASSUME and not seen:
            seen.append(record[2])
            return [*record[:2], "elsewhere"]
        return record

    other = rewritten(largest, tmp_path / "other", change)
    [difference] = again(other).differences
    assert difference.recorded == "goes to node elsewhere"
    assert difference.replayed == f"goes to node {seen[0]}"
    result = CliRunner().invoke(command, [str(other)])
    assert result.exit_code == 1
    assert f"pod {difference.pod}\n  recorded: goes to node elsewhere\n" in result.stdout


def test_a_change_that_was_not_told_shows(largest, tmp_path):
    """A decision follows from what came in: without the nodes there is none."""
    gone = rewritten(
        largest, tmp_path / "gone", lambda r: None if r[:1] == ["l"] and r[2] == "Node" else r
    )
    assert again(gone).differences


def test_the_command_says_that_all_is_as_recorded(largest):
    result = CliRunner().invoke(command, [str(largest), "-o", "json"])
    found = msgspec.json.decode(result.stdout)
    assert (result.exit_code, found["differences"]) == (0, [])
    assert found["hash"] == again(largest).hash
    assert found["records"]["POP"] >= found["decisions"] > 0


# ---------------------------------------------------------------- bad input


def test_a_recording_that_is_cut_off_anywhere(largest, tmp_path):
    whole = files_of(largest)[0].read_bytes()
    for length in sorted({*range(0, len(whole), max(1, len(whole) // 40)), 5, 17, 20, 30}):
        cut = tmp_path / f"{length}.aktrace"
        cut.write_bytes(whole[:length])
        answer = CliRunner().invoke(command, [str(cut)])
        said = ("cut off", "no recording", "empty")
        assert answer.exit_code in {0, 2}
        assert any(text in answer.output for text in said), answer.output
        assert answer.exit_code or "differences   0" in answer.stdout


def test_a_damaged_block(largest, tmp_path):
    data = bytearray(files_of(largest)[0].read_bytes())
    data[-20] ^= 1
    file = tmp_path / "damaged.aktrace"
    file.write_bytes(data)
    with pytest.raises(TraceError, match="its checksum is another"):
        list(read_records(file))
    result = CliRunner().invoke(command, [str(file)])
    assert "its checksum is another" in result.output


def block(payload, size=None, checksum=None):
    head = struct.pack(
        ">II",
        len(payload) if size is None else size,
        zlib.crc32(payload) if checksum is None else checksum,
    )
    return head + payload


def packed(plain):
    return zstandard.ZstdCompressor().compress(plain)


HEADER = trace.Header("0", CONFIG, "1.36", [], 300.0, 0.0, first=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "this is no recording"),
        (b"PK\x03\x04" + b"x" * 50, "this is no recording"),
        (MAGIC[:-1] + b"\x04", "version 4 of the format; this program reads 1, 2, 3"),
        (MAGIC[:-1] + b"\x01", "it is empty"),
        (MAGIC, "it is empty"),
        (MAGIC + b"\xff\xff\xff\xff\0\0\0\0", "says it has 4294967295 bytes"),
        (MAGIC + block(b"no frame"), "cannot be unpacked|unpacks to more"),
        (MAGIC + block(packed(b"\0" * (20 << 20))), "unpacks to more"),
        (MAGIC + block(packed(b"\xff\xff\xff\xff")), "says it has 4294967295 bytes"),
        (MAGIC + block(packed(b"\0\0")), "record is cut off"),
        (MAGIC + block(packed(b"\0\0\0\x01\xc0")), "the header cannot be read"),
    ],
)
def test_other_files(tmp_path, content, said):
    file = tmp_path / "a.aktrace"
    file.write_bytes(content)
    with pytest.raises(TraceError, match=said):
        again(file)
    result = CliRunner().invoke(command, [str(file)])
    assert (result.exit_code, result.output.startswith("Error: ")) == (2, True)


def written(file, *values):
    """A recording of these values, after the header."""
    writer = BlockWriter(file)
    writer.write([msgspec.msgpack.encode(each) for each in (HEADER, *values)])
    writer.close()
    return file


@pytest.mark.parametrize(
    "value",
    [
        [["n", "x"], 1],
        [{}],
        [0],
        [0, "n"],
        [0, [1]],
        [0, ["n", "x", "?"]],
        [0, [["n", "x"], {}]],
        [0, ["n"]],
        [0, ["n", "x", "o", 1.0, "x"]],
    ],
)
def test_an_array_of_records_has_only_records(value, tmp_path):
    assert "a record is no array" in again(written(tmp_path / "a.aktrace", value)).incomplete


_UIDS = st.text(max_size=3) | st.sampled_from(["n", "o", "w"])
_RECORDS = st.lists(
    st.one_of(
        st.tuples(st.just(Op.POP.value), st.floats(0, 9), _UIDS, st.booleans()),
        st.tuples(st.just(Op.ASSUME.value), _UIDS, _UIDS),
        st.tuples(st.sampled_from([Op.DONE.value, Op.BOUND.value]), _UIDS),
        st.tuples(st.just(Op.POD_BOUND.value), st.floats(0, 9), _UIDS, _UIDS, _UIDS),
        st.tuples(
            st.just(Op.REQUEST.value), st.floats(0, 9), _UIDS, st.integers(0, 9), st.just(0.5)
        ),
    ),
    max_size=9,
)


@given(_RECORDS, st.sets(st.integers(0, 8)))
def test_records_without_an_array_are_the_same(records, arrays):
    """Whatever texts are in them, and whatever stands beside them."""
    group = []
    for number, record in enumerate(records):
        if number in arrays:
            group.append(record)
        else:
            group.extend(record)
    value = msgspec.msgpack.decode(msgspec.msgpack.encode((0, group)))
    assert [tuple(record) for record in records_of(value)] == records


def test_an_empty_folder(tmp_path):
    with pytest.raises(TraceError, match="no recording in it"):
        again(tmp_path)


def test_records_with_other_values_end_with_a_message(largest, tmp_path):
    """Any field of any record may be anything."""
    rng = random.Random(5)
    values = [None, -1, 2**62, 1.5, "x", b"x", [], {}, ["x"], True, "\0"]
    for number in range(60):
        target = rng.randrange(200)
        count = itertools.count()

        def change(record, target=target, count=count):
            if next(count) % 200 != target:
                return record
            at = rng.randrange(len(record))
            return [*record[:at], rng.choice(values), *record[at + 1 :]]

        with contextlib.suppress(TraceError):
            again(rewritten(largest, tmp_path / str(number), change), most=10**6)


@given(
    st.one_of(
        st.binary(max_size=200).map(lambda data: MAGIC + data),
        st.lists(st.binary(max_size=60), max_size=4).map(
            lambda parts: MAGIC + b"".join(block(packed(part)) for part in parts)
        ),
        st.builds(
            lambda length, data: MAGIC + block(packed(struct.pack(">I", length) + data)),
            st.integers(0, 2**32 - 1),
            st.binary(max_size=60),
        ),
        st.builds(
            lambda size, checksum, data: MAGIC + block(data, size, checksum),
            st.integers(0, 2**32 - 1),
            st.integers(0, 2**32 - 1),
            st.binary(max_size=60),
        ),
    )
)
@settings(max_examples=40, deadline=None)
def test_any_bytes_end_with_a_message(tmp_path_factory, content):
    """Whatever the bytes and the lengths in them say."""
    file = tmp_path_factory.mktemp("any") / "a.aktrace"
    file.write_bytes(content)
    tracemalloc.start()
    with pytest.raises(TraceError, match="aktrace"):
        again(file)
    with pytest.raises(TraceError, match="aktrace"):
        read_story(file)
    assert tracemalloc.get_traced_memory()[1] < 8 << 20
    tracemalloc.stop()


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.sampled_from([*Op, "?"]), st.lists(_VALUES, max_size=5)), max_size=8))
@settings(max_examples=25, deadline=None)
def test_any_records_end_with_a_message_or_are_read(tmp_path_factory, records):
    file = tmp_path_factory.mktemp("any") / "a.aktrace"
    writer = BlockWriter(file)
    rows, checkpoint = (
        [Op.ROWS, [], []],
        [Op.CHECKPOINT, 1.0, recording._json(recording._plain(np.random.default_rng(0)))],
    )
    told = [HEADER, rows, checkpoint, *([op, *fields] for op, fields in records)]
    writer.write([msgspec.msgpack.encode(record) for record in told])
    writer.close()
    assert isinstance(again(file).incomplete, str)
    assert isinstance(read_story(file).incomplete, str)


# ---------------------------------------------------------------- a disk that is full or slow


class Clock:
    def monotonic(self):
        return 1.0

    wall = steady = monotonic


def started(folder, **limits):
    """A recorder of a state with one node."""
    full = FullState()
    full.node("n0")
    recorder = Recorder(folder, Clock(), **limits)
    recorder.begin(HEADER, full.state, np.random.default_rng(1))
    return recorder


def test_a_slow_disk_loses_records_and_says_so(tmp_path, monkeypatch, caplog):
    go_on = threading.Event()
    write = BlockWriter.write

    def slowly(self, records):
        assert go_on.wait(60)
        write(self, records)

    monkeypatch.setattr(BlockWriter, "write", slowly)
    monkeypatch.setattr(recording, "BLOCK_BYTES", 100)
    monkeypatch.setattr(recording, "GROUP_VALUES", 10)
    recorder = started(tmp_path)
    for number in range(2000):
        recorder.add(Op.DONE, f"pod-{number}")
    assert recorder.dropped > 0
    assert "The recording has a gap" in caplog.text
    assert "the disk does not keep up" in caplog.text
    go_on.set()
    recorder._blocks.join()
    recorder.add(Op.DONE, "later")
    recorder.end()
    files = files_of(tmp_path)
    assert len(files) == 2
    assert [next(iter(read_records(file)))[0].gap for file in files] == [False, True]
    assert [record for record in read_records(files[1]) if record[0] == "n"] == [["n", "later"]]
    assert again(tmp_path).gaps == 1


def test_a_full_disk_is_no_fault_of_the_scheduler(tmp_path, monkeypatch, caplog):
    def full(_self, _records):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BlockWriter, "write", full)
    monkeypatch.setattr(recording, "BLOCK_BYTES", 100)
    monkeypatch.setattr(recording, "GROUP_VALUES", 10)
    recorder = started(tmp_path)
    for number in range(500):
        recorder.add(Op.DONE, f"pod-{number}")
    recorder.end()
    assert recorder.dropped > 0


def test_a_directory_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Recorder(tmp_path / "file" / "folder", Clock())


def test_a_record_that_is_too_large_is_a_gap(tmp_path, caplog):
    recorder = started(tmp_path)
    recorder.add(Op.DONE, "x" * (trace.MAX_RECORD + 1))
    recorder.add(Op.DONE, "later")
    recorder.end()
    assert [next(iter(read_records(file)))[0].gap for file in files_of(tmp_path)] == [False, True]


def test_records_that_are_large_together_are_written_one_by_one(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MAX_GROUP", 1000)
    recorder = started(tmp_path)
    for number in range(50):
        recorder.add(Op.DONE, f"pod-{number}" + "x" * 40)
    recorder.end()
    found = [record[1] for record in read_records(files_of(tmp_path)[0]) if record[0] == Op.DONE]
    assert found == [f"pod-{number}" + "x" * 40 for number in range(50)]


def test_little_is_kept_of_pods_that_have_gone(tmp_path):
    recorder = started(tmp_path)
    assert recorder.open()
    kept = []
    for number in range(50):
        template = PodTemplate(PodSpec(), b"x" * (1 << 20))
        kept.append(weakref.ref(template))
        pod = make_pod(namespace="default", name=f"pod-{number}", uid=f"uid-{number}")
        recorder.pod(msgspec.structs.replace(pod, template=template))
    del template
    recorder.end()
    assert sum(each() is not None for each in kept) < 10


@pytest.mark.parametrize("way", ["append", "extend"])
def test_a_record_that_cannot_be_encoded_is_a_gap_from_there_on(way, tmp_path):
    recorder = started(tmp_path)
    assert recorder.open()
    for uid in ("before", 2**70, "after"):
        getattr(recorder, way)((Op.DONE.value, uid))
    recorder.add(Op.DONE, "then")
    recorder.gather()
    recorder.add(Op.DONE, "later")
    recorder.end()
    done = [
        [record[1] for record in read_records(file) if record[0] == Op.DONE]
        for file in files_of(tmp_path)
    ]
    assert done == [["before"], ["later"]]
    assert recorder.dropped == 3


# ---------------------------------------------------------------- what a replay has to know


@pytest.mark.parametrize(
    "field",
    sorted(
        {*trace.PodRecord.__struct_fields__}
        - {"namespace", "name", "node_name", "resource_version"}
    ),
)
def test_a_binding_that_changes_more_is_recorded_as_a_whole(field):
    other = Pod(
        namespace="default",
        name="pod",
        uid="other",
        template=PodTemplate(PodSpec()),
        labels=LabelSet(),
        generation=2,
        deletion_timestamp="2026-01-01T00:00:00Z",
        leaves_at_once=True,
        owner=OwnerReference(kind="ReplicaSet", name="other", uid="other", controller=True),
        pod_group_name="other",
        nominated_node_name="other",
        phase="Running",
        conditions=(PodCondition(type="PodScheduled", status="False"),),
        start_time=1.0,
        resized=PodTemplate(PodSpec()).resources,
        claim_statuses=(PodResourceClaimStatus(name="other"),),
        extended_claim_status=b"{}",
    )
    old = make_pod(namespace="default", name="pod", uid="uid", resource_version="1")
    new = msgspec.structs.replace(old.on("n0"), resource_version="2")
    assert recording._only_bound(old, new)
    new = msgspec.structs.replace(new, **{field: getattr(other, field)})
    assert not recording._only_bound(old, new)


def test_draws_of_decisions_that_are_not_repeated_are_known(tmp_path):
    """An extended pod preempts, and draws from the generator from which the next pod draws."""
    full = FullState()
    rng = full.rng
    recorder = Recorder(tmp_path, Clock())
    recorder.begin(HEADER, full.state, rng)
    recorder.draws_elsewhere(["extended"])
    rng.random()
    recorder.before_drawing()
    first = recording._json(recording._plain(rng))
    recorder.draws_no_more("extended")
    rng.random()
    recorder.before_drawing()
    second = recording._json(recording._plain(rng))
    recorder.before_drawing()
    recorder.end()
    states = [record[1] for record in read_records(files_of(tmp_path)[0]) if record[0] == Op.RANDOM]
    assert states == [first, second]


def test_a_list_that_is_longer_than_a_record_may_be(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "LIST_BYTES", 100)
    recorder = started(tmp_path)
    recorder.listed("l", 1.0, ("Service",), [b"%d" % number * 30 for number in range(9)])
    recorder.listed("q", 1.0, (), [])
    recorder.end()
    _, *records = read_records(files_of(tmp_path)[0])
    lists = [record[2:] for record in records if record[0] in {"l", "q"}]
    assert [more for *_, more in lists] == [True, True, False, False]
    assert [len(items) for *_, items, _ in lists] == [4, 4, 1, 0]
