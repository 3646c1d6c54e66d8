"""Files that change while we run."""

import errno
from pathlib import Path

import pytest

from app.http import files
from app.http.files import LOOK_INTERVAL, FileWatch, TokenFile
from app.runtime.shortages import Shortages


@pytest.fixture(autouse=True)
def shortages(monkeypatch):
    found = Shortages()
    monkeypatch.setattr(files, "SHORTAGES", found)
    return found


def test_a_change_is_told_once(tmp_path):
    path = tmp_path / "file"
    path.write_text("one")
    watch = FileWatch([str(path)])
    assert not watch.changed(0.0)
    path.write_text("another")
    assert not watch.changed(LOOK_INTERVAL - 1)
    assert watch.changed(LOOK_INTERVAL)
    assert not watch.changed(2 * LOOK_INTERVAL)


def test_what_could_not_be_read_for_want_of_descriptors_is_read_again(
    tmp_path, monkeypatch, shortages
):
    path = tmp_path / "token"
    path.write_text("old")
    token = TokenFile(str(path))
    path.write_text("newer")
    read = Path.read_text

    def no_descriptor(*_args, **_more):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_text", no_descriptor)
    assert token.token(0.0) == "old"
    assert "Too many open files" in token.problem
    assert shortages.counts == {"read files": 1}
    monkeypatch.setattr(Path, "read_text", read)
    assert token.token(LOOK_INTERVAL - 1) == "old"
    assert token.token(LOOK_INTERVAL) == "newer"
    assert not token.problem


def test_what_is_no_good_is_not_read_again_until_it_changes(tmp_path, shortages):
    path = tmp_path / "token"
    path.write_text("old")
    token = TokenFile(str(path))
    path.write_text("")
    assert token.token(0.0) == "old"
    assert not token._watch.changed(LOOK_INTERVAL)
    assert not shortages.counts
