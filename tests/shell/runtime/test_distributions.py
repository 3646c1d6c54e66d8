"""Installed distributions: as importlib.metadata knows them."""

import importlib.metadata
import sys
import zipfile
from pathlib import Path

import pytest

from app.runtime.distributions import entry_points, version

GROUP = "aiokube_scheduler.plugins"
CONTENT = {
    "METADATA": "Metadata-Version: 2.1\nName: some-plugins\nVersion: 1.2+local\n\nVersion: 3\n",
    "entry_points.txt": f"[{GROUP}]\nNotOnMondays = some_plugins:NotOnMondays\n",
}


def install(folder: Path, info: str) -> None:
    (folder / info).mkdir()
    for name, text in CONTENT.items():
        (folder / info / name).write_text(text)


@pytest.mark.parametrize("info", ["some_plugins-1.2+local.dist-info", "some_plugins.egg/EGG-INFO"])
@pytest.mark.parametrize("first", [True, False])
def test_entry_points_of_a_folder(tmp_path, monkeypatch, info, first):
    egg, _, name = info.rpartition("/")
    (tmp_path / egg).mkdir(exist_ok=True)
    install(tmp_path / egg, name)
    assert entry_points(group=GROUP) == ()
    monkeypatch.setattr(sys, "path", [*sys.path])
    sys.path.insert(0 if first else len(sys.path), str(tmp_path / egg))
    (found,) = entry_points(group=GROUP)
    assert found.value == "some_plugins:NotOnMondays"
    assert found.dist.name == "some-plugins"


def test_entry_points_of_an_archive(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "plugins.zip", "w") as archive:
        for name, text in CONTENT.items():
            archive.writestr(f"some_plugins-1.2.dist-info/{name}", text)
    monkeypatch.syspath_prepend(tmp_path / "plugins.zip")
    (found,) = entry_points(group=GROUP)
    assert found.name == "NotOnMondays"


def test_entry_points_of_another_finder(monkeypatch):
    class Distribution(importlib.metadata.Distribution):
        def read_text(self, filename):
            return CONTENT.get(filename)

        def locate_file(self, path):
            return Path(path)

    class Finder(importlib.metadata.DistributionFinder):
        def find_spec(self, *_):
            return None

        def find_distributions(self, context=None):
            return [Distribution()]

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder()])
    (found,) = entry_points(group=GROUP)
    assert found.name == "NotOnMondays"


def test_other_groups_are_those_of_the_library():
    (found,) = [each for each in entry_points(group="console_scripts") if "kubectl-" in each.name]
    assert found.value == "aiokube_scheduler.cli:main"
    assert entry_points(group="nobody.has.this") == ()


def test_the_version_is_that_of_the_metadata(tmp_path, monkeypatch):
    assert version("aiokube-scheduler") == importlib.metadata.version("aiokube-scheduler")
    install(tmp_path, "some_plugins-1.2+local.dist-info")
    monkeypatch.syspath_prepend(tmp_path)
    assert version("some-plugins") == "1.2+local"
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        version("nobody-has-this")
