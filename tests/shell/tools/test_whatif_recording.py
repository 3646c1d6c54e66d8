"""Questions about the end of a recording."""

import asyncio

import pytest

from app.plugins import registry
from app.tools.replay.run import state_after
from app.tools.whatif import DumpOptions, ask_dump, is_recording
from app.wire.whatif_v1 import WhatIfQuestion
from tests.shell.tools.test_replay import recorded

TINY = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"},
        "spec": {"containers": [{"name": "main"}], "tolerations": [{"operator": "Exists"}]}}  # fmt: skip


def test_a_recording_is_asked_as_it_is_at_its_end(tmp_path, monkeypatch):
    folder = recorded(tmp_path, (1,), monkeypatch)[0]
    assert is_recording((folder,))
    assert not is_recording((tmp_path / "dump.yaml",))
    world = state_after(folder, registry.registry(()))
    nodes = [node for node in world.state.table.nodes if node is not None]
    assert nodes
    options = DumpOptions(dump=(folder,))
    answer = asyncio.run(ask_dump(options, WhatIfQuestion("how-many", objects=[TINY])))
    [count] = answer.counts
    table = world.state.table
    free = table.allocatable_pods[: table.size] - table.pod_count[: table.size]
    assert count.count == sum(
        max(0, int(n)) for n, there in zip(free, table.exists, strict=False) if there
    )
    assert answer.at == pytest.approx(world.clock.now)
    name = nodes[0].name
    drained = asyncio.run(ask_dump(options, WhatIfQuestion("drain", nodes=[name])))
    assert {row.node for row in drained.pods}.isdisjoint({name})
