"""Recordings of a real API server: every decision is as recorded, and all together are the known ones.

Each is a file of FOLDER/trace, made by ``python -m tests.whole.recorded FOLDER --real`` with

    plain            --nodes 20 --pods 120 --rate 20 --life 4 --delay -1
    preemption       --nodes 8 --pods 120 --rate 15 --life 6 --delay 20
    volumes          --nodes 10 --pods 40 --rate 10 --life 5 --delay -1 --shape volumes
    devices          --nodes 6 --pods 40 --rate 10 --life 60 --delay -1 --shape dra --cpu 100m
    faulty-extender  --nodes 20 --pods 120 --rate 10 --life 5 --faults

A hash, which ``replay`` prints, changes when a decision does: if that is meant, and a recorded decision is made
otherwise now, the recording has to be made anew.
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
