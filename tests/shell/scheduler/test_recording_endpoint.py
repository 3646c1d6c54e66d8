"""``GET /recording``, and the command that asks for it."""

import asyncio

import numpy as np
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer, make_mocked_request
from click.testing import CliRunner

from app.cli import record
from app.cli.root import main
from app.plugins import registry
from app.scheduler.recording import Recorder
from app.scheduler.trace import BlockWriter, Op, TraceError, files_of, read_records
from app.serving.access import RequestRejected
from app.serving.recording import NotRecordedError, RecordedFile, RecordingPages
from app.tools.replay.run import replay
from tests.core.scheduler.full_state import FullState
from tests.shell.tools.test_replay import HEADER


class Clock:
    """A time for each file."""

    def __init__(self):
        self.now = 1000.0

    def wall(self):
        return self.now

    steady = monotonic = wall


@pytest.fixture
def recorder(tmp_path):
    """One with three files, of 1000, 1100 and 1200 s."""
    full = FullState()
    full.node("n0")
    clock = Clock()
    made = Recorder(tmp_path / "trace", clock, file_bytes=1)
    made.begin(HEADER, full.state, np.random.default_rng(1))
    for number in range(3):
        clock.now = 1000.0 + 100 * number
        made.add(Op.FLUSH.value, clock.now)
        made._hand_over()
        made._blocks.join()
    yield made
    made.end()


def taken(recorder, since):
    """What is sent, file by file."""
    files = recorder.latest(recorder.mark(), since)
    try:
        return [file.read(size) for file, size in files]
    finally:
        for file, _ in files:
            file.close()


@pytest.mark.parametrize(("since", "files"), [(1250, 1), (1150, 2), (1100, 2), (1099, 3), (0, 3)])
def test_the_files_that_have_a_time_and_what_came_after_it(recorder, since, files):
    whole = [file.read_bytes() for file in files_of(recorder._directory)]
    assert taken(recorder, since) == whole[-files:]


def test_what_is_buffered_is_written_first(recorder, tmp_path):
    recorder.add(Op.FLUSH.value, 1201.0)
    file = tmp_path / "taken.aktrace"
    file.write_bytes(b"".join(taken(recorder, 0)))
    times = [record[1] for record in read_records(file) if record[0] == Op.FLUSH]
    assert times == [1000.0, 1100.0, 1200.0, 1201.0]
    found = replay(file, registry.registry(()), look=lambda _: None)
    assert (found.differences, found.incomplete, found.gaps) == ([], "", 0)


def test_a_file_that_follows_another_one_may_be_damaged(recorder, tmp_path):
    one, two, *_ = taken(recorder, 0)
    file = tmp_path / "taken.aktrace"
    for whole, said in (
        (one + two[:8], "no recording"),
        (one + two[:15] + b"\x09" + two[16:], "version 9"),
        (one + two[:-1], "cut off"),
    ):
        file.write_bytes(whole)
        with pytest.raises(TraceError, match=said):
            list(read_records(file))


def test_a_disk_that_is_full_is_no_recording(tmp_path, monkeypatch):
    def full(_self, _records):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(BlockWriter, "write", full)
    made = Recorder(tmp_path, Clock())
    made.begin(HEADER, FullState().state, np.random.default_rng(1))
    made.add(Op.FLUSH.value, 1.0)
    with pytest.raises(TraceError, match="full"):
        made.latest(made.mark(), 0.0)
    made.end()


# ---------------------------------------------------------------- the page


@pytest.mark.parametrize(
    ("query", "status", "said"),
    [
        ("", 404, "--record DIR"),
        ("?last=-5m", 400, "a duration such as 5m"),
        ("?last=soon", 400, "a duration such as 5m"),
        ("?last=1000h", 400, "of a week at most"),
    ],
)
async def test_what_is_refused(query, status, said):
    """Also by a scheduler that does not record."""
    with pytest.raises(RequestRejected) as refused:
        await RecordingPages(None)._send(make_mocked_request("GET", f"/recording{query}"))
    assert refused.value.response.status == status
    assert said in refused.value.response.text


async def served(latest, path="/recording"):
    app = web.Application()
    app.add_routes(RecordingPages(latest).routes())
    async with TestClient(TestServer(app)) as client, client.get(path) as response:
        return response.status, await response.read()


async def test_the_bytes_of_all_files_up_to_their_marks(tmp_path):
    asked, opened = [], []
    for number in range(2):
        (tmp_path / str(number)).write_bytes(b"%d" % number * 700_000)

    async def latest(seconds):
        asked.append(seconds)
        opened.extend(
            RecordedFile((tmp_path / name).open("rb"), size)
            for name, size in (("0", 700_000), ("1", 300_000))
        )
        return opened

    status, body = await served(latest, "/recording?last=1h")
    assert (status, asked, body) == (200, [3600.0], b"0" * 700_000 + b"1" * 300_000)
    assert all(each.file.closed for each in opened)


async def test_one_at_a_time():
    going, go = asyncio.Event(), asyncio.Event()

    async def latest(_seconds):
        going.set()
        await go.wait()
        return []

    app = web.Application()
    pages = RecordingPages(latest)
    app.add_routes(pages.routes())
    async with TestClient(TestServer(app)) as client:
        first = asyncio.ensure_future(client.get("/recording"))
        await going.wait()
        with pytest.raises(RequestRejected) as refused:
            await pages._send(make_mocked_request("GET", "/recording"))
        assert refused.value.response.status == 429
        go.set()
        assert (await first).status == 200
        async with client.get("/recording") as again:
            assert again.status == 200


# ---------------------------------------------------------------- the command


def asked(monkeypatch, tmp_path, pages):
    """Runs the command against these pages."""

    async def saved(target, last, file):
        app = web.Application()
        app.add_routes(pages.routes())
        async with TestServer(app) as server:
            object.__setattr__(target, "server", str(server.make_url("")))
            return await real(target, last, file)

    real = record._save
    monkeypatch.setattr(record, "_save", saved)
    words = ["record", "--last", "1m", "-o", f"{tmp_path}/it.aktrace", "--kubeconfig", ""]
    return CliRunner().invoke(main, words)


def test_the_command_writes_what_it_gets(monkeypatch, tmp_path):
    async def latest(seconds):
        (tmp_path / "a").write_bytes(b"recorded")
        return [RecordedFile((tmp_path / "a").open("rb"), int(seconds) // 10)]

    result = asked(monkeypatch, tmp_path, RecordingPages(latest))
    assert (result.exit_code, "Wrote 6 bytes" in result.output) == (0, True), result.output
    assert (tmp_path / "it.aktrace").read_bytes() == b"record"
    assert not list(tmp_path.glob("*.part"))


def test_the_command_leaves_nothing_behind_when_the_answer_breaks_off(monkeypatch, tmp_path):
    async def latest(_seconds):
        (tmp_path / "a").write_bytes(b"recorded")
        return [RecordedFile((tmp_path / "a").open("rb"), 1000)]

    result = asked(monkeypatch, tmp_path, RecordingPages(latest))
    assert result.exit_code == 1, result.output
    assert {each.name for each in tmp_path.iterdir()} == {"a"}


@pytest.mark.parametrize("words", [["--last", "soon", "-o", "x"], ["--last", "5m"]])
def test_the_command_refuses_other_words(words):
    result = CliRunner().invoke(main, ["record", *words])
    assert result.exit_code != 0
    assert "Error" in result.output


def test_a_page_that_has_nothing_says_why(monkeypatch, tmp_path):
    async def latest(_seconds):
        raise NotRecordedError("the disk is full")

    app = RecordingPages(latest)
    result = asked(monkeypatch, tmp_path, app)
    assert result.exit_code == 1
