"""The log: klog's text, JSON, verbosity, and nothing that should not be there."""

import io
import json
import logging
import re

import pytest

from app.runtime import logs

log = logging.getLogger("app.test")


@pytest.fixture
def written(monkeypatch):
    """Starts logging into a text, and puts everything back."""
    root = logging.getLogger()
    before, level = root.handlers[:], root.level
    stream = io.StringIO()

    def start(**options):
        monkeypatch.setattr("sys.stderr", stream)
        logs.configure(**options)
        return stream

    yield start
    root.handlers[:] = before
    logs.set_verbosity(0)
    root.setLevel(level)


def test_plain_lines_are_klogs(written):
    stream = written()
    log.info("Serving at %s", "here")
    log.warning("careful")
    log.error("broken")
    lines = stream.getvalue().splitlines()
    assert re.fullmatch(
        r"I\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ test_logs.py:\d+\] Serving at here", lines[0]
    )
    assert [line[0] for line in lines] == ["I", "W", "E"]


def test_structured_lines_quote_the_text_and_show_the_caller(written):
    stream = written()
    logs.info(
        log, "Did a thing", pod="ns/p", count=3, ratio=0.5, good=True, nothing=None, many=["a", "b"]
    )
    line = stream.getvalue().rstrip("\n")
    assert line.endswith(
        '] "Did a thing" pod="ns/p" count=3 ratio=0.5 good=true nothing=null many=["a","b"]'
    )
    assert "test_logs.py:" in line


def test_texts_cannot_forge_lines_or_keys(written):
    stream = written()
    logs.error(log, "Failed", err='no" pod="other')
    assert stream.getvalue().rstrip("\n").endswith(r'"Failed" err="no\" pod=\"other"')


def test_plain_texts_cannot_forge_lines(written):
    stream = written()
    log.info("Serving %s", "/a\nE1121 10:15:00.000000 1 x.py:1] no\rE\x1b[2J\u2028\ttab")
    first, second = stream.getvalue().rstrip("\n").split("\n")
    assert first.endswith("] Serving /a")
    assert second == r"	E1121 10:15:00.000000 1 x.py:1] no\rE\x1b[2J\u2028" + "\ttab"


def test_long_texts_become_blocks(written):
    stream = written()
    logs.info(log, "Dump", nodes="one\ntwo")
    assert stream.getvalue().endswith('"Dump" nodes=<\n\tone\n\ttwo\n >\n')


def test_json_lines(written):
    stream = written(logging_format="json", verbosity=2)
    logs.info(log, "Did a thing", v=2, pod="ns/p", error=ValueError("why"), score=7)
    try:
        {}["k"]
    except KeyError:
        log.exception("Oh")
    first, second = map(json.loads, stream.getvalue().splitlines())
    assert (first["msg"], first["v"], first["pod"], first["error"], first["score"]) == (
        "Did a thing",
        2,
        "ns/p",
        "why",
        7,
    )
    assert first["caller"].startswith("test_logs.py:")
    assert second["level"] == "error"
    assert "KeyError" in second["err"]


@pytest.mark.parametrize(
    ("verbosity", "level", "shown"),
    [(0, 0, True), (0, 2, False), (2, 2, True), (3, 10, False), (10, 10, True)],
)
def test_verbosity(written, verbosity, level, shown):
    written(verbosity=verbosity)
    assert logs.enabled(level) is shown
    assert logs.enabled(verbosity)
    assert not logs.enabled(verbosity + 1)


def test_debugging_messages_from_verbosity_4_on(written):
    stream = written(verbosity=3)
    log.debug("not yet")
    logs.set_verbosity(4)
    log.debug("now")
    assert "now" in stream.getvalue()
    assert "not yet" not in stream.getvalue()


#: What could move the cursor, forge a record or hide text on a terminal or in a viewer.
_FORGED = "one\ntwo\rI1124 10:15:00.0 1 a.py:1] x\x1b[2J\x07\x85\x9b2J\x7f\u2028\u2029\u202e\u2066"
_RAW = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


@pytest.mark.parametrize("logging_format", ["text", "json"])
@pytest.mark.parametrize("value", [_FORGED, [_FORGED], {"why": _FORGED}, ValueError(_FORGED)])
def test_control_characters_never_reach_the_log(written, logging_format, value):
    stream = written(logging_format=logging_format)
    logs.error(log, "Extender failed", err=value)
    lines = stream.getvalue().split("\n")[:-1]
    assert not [line for line in lines if _RAW.search(line)]
    assert all(line[0] in "\t " for line in lines[1:])
    if logging_format == "json":
        shown = json.loads(lines[0])["err"]
        assert shown in (value, str(value))  # a reader of JSON gets what was written


class _Forged:
    """A key whose ``repr`` is not harmless."""

    def __repr__(self):
        return _FORGED


@pytest.mark.parametrize("logging_format", ["text", "json"])
def test_tracebacks_cannot_forge_lines(written, logging_format):
    stream = written(logging_format=logging_format)
    try:
        {}[_Forged()]
    except KeyError:
        log.exception("Failed with\n%r", _FORGED)
    lines = stream.getvalue().split("\n")[:-1]
    assert not [line for line in lines if _RAW.search(line)]
    assert all(line.startswith("\t") for line in lines[1:])
    assert "KeyError" in stream.getvalue()


def test_errors_of_one_cause_are_logged_once_in_a_while(written):
    stream, now = written(), [0.0]
    repeats = logs.Repeats(lambda: now[0])
    for number in range(40):
        now[0] = number / 2
        repeats.error(log, "Failed", f"node n{number} is locked", err=f"node n{number} is locked")
    repeats.error(log, "Failed", "something else", err="else")
    lines = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        '"Failed" err="node n0 is locked"',
        '"Failed" err="node n20 is locked" alsoSince=19',
        '"Failed" err="else"',
    ]
    logs.set_verbosity(4)
    repeats.error(log, "Failed", "something else", err="else")
    assert stream.getvalue().count("else") == 2


def test_causes_are_forgotten(written):
    stream = written()
    repeats = logs.Repeats(lambda: 0.0)
    for _ in range(2):
        for letter in range(150):
            repeats.error(log, "Failed", chr(0x4E00 + letter))
    assert len(repeats._logged) == repeats.MOST
    assert stream.getvalue().count("Failed") == 300
