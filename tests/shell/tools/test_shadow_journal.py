"""The journal stays within its size, survives what cannot be read, and its report counts."""

import io
import json

import pytest
from rich.console import Console

from app.tools.shadow.journal import Journal, JournalError, files, read
from app.tools.shadow.report import Report, as_page, as_text, report
from app.tools.shadow.verdict import CLASSES, Verdict


def verdict(number: int, kind: str = "same", **parts) -> Verdict:
    parts = {"at": float(number), "lag": 0.2} | parts
    return Verdict(pod=f"default/p{number}", kind=kind, node="n", **parts)


def size_of(folder) -> int:
    return sum(file.stat().st_size for file in files(folder))


async def written(journal: Journal, verdicts) -> None:
    for each in verdicts:
        journal.put(each)
        await journal.write()


async def test_what_is_written_is_read(tmp_path):
    journal = Journal(tmp_path / "new", 1 << 20)
    given = [verdict(1), verdict(2, "unexplained", plugins=("A",), scores={"A": 3}, loss=2)]
    await written(journal, given)
    assert list(read(tmp_path / "new")) == given
    line = json.loads(files(tmp_path / "new")[0].read_text().splitlines()[1])
    assert line["class"] == "unexplained"
    assert line["plugins"] == ["A"]


async def test_the_size_is_bounded_and_the_oldest_go(tmp_path):
    journal = Journal(tmp_path, 8000)
    await written(journal, map(verdict, range(500)))
    assert sum(file.stat().st_size for file in files(tmp_path)) <= 8000
    kept = [int(each.at) for each in read(tmp_path)]
    assert kept == list(range(kept[0], 500))
    assert kept[0] > 0


async def test_a_restart_goes_on_with_the_journal(tmp_path):
    await written(Journal(tmp_path, 1 << 20), [verdict(1)])
    await written(Journal(tmp_path, 1 << 20), [verdict(2)])
    assert [each.at for each in read(tmp_path)] == [1.0, 2.0]


async def test_a_restart_with_a_smaller_size_keeps_to_it(tmp_path):
    await written(Journal(tmp_path, 1 << 20), map(verdict, range(2000)))
    assert size_of(tmp_path) > 16_000
    await written(Journal(tmp_path, 16_000), [verdict(2000)])
    assert size_of(tmp_path) <= 16_000
    assert [each.at for each in read(tmp_path)][-1] == 2000.0


async def test_a_batch_that_is_larger_than_the_journal_keeps_to_its_size(tmp_path):
    journal = Journal(tmp_path, 8000)
    for number in range(1000):
        journal.put(verdict(number))
    await journal.write()
    assert size_of(tmp_path) <= 8000
    assert [int(each.at) for each in read(tmp_path)][-1] == 999


async def test_lines_do_not_wait_without_limit(tmp_path, caplog):
    journal = Journal(tmp_path, 1 << 30)
    for number in range(50_010):
        journal.put(verdict(number))
    assert journal.lost == 10
    assert len(caplog.records) == 1
    await journal.write()
    assert len(list(read(tmp_path))) == 50_000


async def test_lines_that_are_not_whole_are_left_out(tmp_path):
    journal = Journal(tmp_path, 1 << 20)
    await written(journal, [verdict(1)])
    with files(tmp_path)[0].open("ab") as out:
        out.write(b'{"pod":"default/cut\n\xff\n[]\n')
    await written(journal, [verdict(2)])
    assert [each.at for each in read(tmp_path)] == [1.0, 2.0]


async def test_a_write_that_fails_is_counted(tmp_path, caplog):
    journal = Journal(tmp_path / "gone", 1 << 20)
    (tmp_path / "gone").rmdir()
    await written(journal, [verdict(1), verdict(2)])
    assert journal.lost == 2
    assert len(caplog.records) == 1


def test_a_folder_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="file"):
        Journal(tmp_path / "file", 1)
    with pytest.raises(JournalError, match="no folder"):
        list(read(tmp_path / "none"))


MIXED = [
    *(verdict(n) for n in range(90)),
    *(verdict(n, "tie") for n in range(90, 96)),
    verdict(96, "race", lag=0.9),
    verdict(97, "unexplained", plugins=("A", "B"), loss=5, change="A would have to weigh less"),
    verdict(98, "does-not-fit-here", plugins=("A",), message_here="no <room>"),
    verdict(99, "not-comparable"),
]


def test_the_report_counts():
    told = report(MIXED)
    assert told.pods == 100
    assert tuple(told.classes) == CLASSES
    assert {kind: n for kind, n in told.classes.items() if n} == {
        "same": 90,
        "tie": 6,
        "race": 1,
        "does-not-fit-here": 1,
        "not-comparable": 1,
        "unexplained": 1,
    }
    assert told.by_plugin == {"A": 2, "B": 1}
    assert told.lag_seconds.p50 == 0.2
    assert 0.2 < told.lag_seconds.p99 <= told.lag_seconds.max == 0.9
    assert told.score_loss.p50 == 5.0
    assert told.summary == (
        "Of 100 decisions 96 (96.00 %) are those of the cluster's scheduler or tied; 1 (1.00 %) depend on the order of events at "
        "about the same time; 2 differ, most likely through A (2), B (1); 1 cannot be compared; 1 (1.00 %) stay unexplained."
    )


def test_the_report_has_a_span():
    told = report(MIXED, since=90.0, until=97.0)
    assert (told.pods, told.first, told.last) == (7, 90.0, 96.0)


def test_nothing_is_a_report_too():
    told = report([])
    assert (told.pods, told.summary) == (0, "No pod was judged.")
    assert as_page(told)


def test_people_see_the_differences():
    console = Console(width=160, record=True, file=io.StringIO())
    console.print(as_text(report(MIXED)))
    text = console.export_text()
    assert "does-not-fit-here" in text
    assert "A would have to weigh less" in text
    page = as_page(report(MIXED))
    assert "no &lt;room&gt;" in page
    assert "<room>" not in page


def test_the_fields_of_the_json():
    assert {"pods", "classes", "byPlugin", "lagSeconds", "scoreLoss", "summary"} <= set(
        Report.__struct_encode_fields__
    )
