"""Recordings of a real API server: every decision is as recorded, and all together are the known ones.

Made by ``python -m tests.whole.recorded FOLDER --real`` (traces/README.md). A hash changes when a decision does: if that is meant, and
a recorded decision is made otherwise now, the recording has to be made anew.
"""

import json
from pathlib import Path

import pytest

from app.plugins import registry
from app.tools.replay.run import replay
from app.tools.replay.story import read_story

TRACES = Path(__file__).parent / "traces"
HASHES = json.loads((TRACES / "hashes.json").read_text())


@pytest.mark.parametrize("name", HASHES)
def test_every_decision_is_as_recorded(name):
    classes = registry.registry(())
    found = replay(TRACES / f"{name}.aktrace", classes, look=lambda _: None)
    assert (found.differences, found.incomplete, found.gaps) == ([], "", 0)
    assert found.hash == HASHES[name]
    assert found.decisions + found.adopted >= 40


def test_they_have_what_they_are_for():
    stories = {name: read_story(TRACES / f"{name}.aktrace") for name in HASHES}
    assert set(stories) == {"plain", "preemption", "volumes", "devices", "faulty-extender"}
    assert stories["preemption"].preempted > 0
    assert stories["faulty-extender"].cassette.calls > 20
    for story in stories.values():
        assert "/tmp" not in story.header.configuration
        assert "kubeconfig: /" not in story.header.configuration
