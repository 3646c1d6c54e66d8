"""Questions with extenders: they are asked by their dry runs only, side by side, and in the time of the question."""

import asyncio

import msgspec
import pytest

from app.extender.chain import ExtenderChain
from app.extender.client import HTTPExtender
from app.extender.config import DryRunConfig, ManagedResource
from app.model.features import Features
from app.model.objects import Node
from app.plugins import registry
from app.scheduler.profiles import with_gang_scheduling
from app.scheduler.whatif.answering import WhatIf
from app.scheduler.whatif.manifests import SYSTEM_PRIORITIES
from app.wire.whatif_v1 import RefusedError, WhatIfQuestion
from tests.shell.extender.fakes import FakeTransport, extender
from tests.shell.scheduler.test_whatif import asking, box, pod, workload

pytestmark = pytest.mark.looptime

DRY = DryRunConfig(filter_verb="try", prioritize_verb="try-scores")


async def priorities():
    return SYSTEM_PRIORITIES


def asked(world, reply, *, dry=DRY, **fields):
    """What answers questions with one extender, the transport of its dry runs, and that of the usual calls."""
    usual = extender(dry_run=dry, bind_verb="", **fields)
    fake = FakeTransport(reply)
    dry_runs = []
    if dry:
        made = HTTPExtender(
            usual.config.for_dry_runs(),
            transport=fake,
            sink=lambda _event: None,
            environ={},
            ahead=usual,
        )
        dry_runs.append(made)
    plain = world.loaded.to_plain(registry.capabilities(registry.registry()))
    whatif = WhatIf(
        world.state,
        [with_gang_scheduling(profile) for profile in plain],
        registry.registry(),
        features=Features.of("1.36"),
        clock=world.clock,
        seed=0,
        priorities=priorities,
        chain=ExtenderChain([usual], dry_runs=dry_runs),
    )
    return whatif, fake, usual.fake


def leaves(*names, seconds=0.0, score=0):
    async def reply(path, body):
        await asyncio.sleep(seconds)
        sent = body["NodeNames"]
        if path == "try-scores":
            return [{"Host": name, "Score": score if name == names[-1] else 0} for name in sent]
        return {"NodeNames": [name for name in sent if name in names], "FailedNodes": {}}

    return reply


def question(*objects, **fields):
    return WhatIfQuestion("fits", objects=list(objects), extenders=True, **fields)


async def test_the_dry_run_decides_and_the_usual_verbs_are_not_called():
    async with asking("a", "b", "c") as world:
        whatif, fake, usual = asked(world, leaves("a", "b", score=10))
        found = await whatif.ask(question(pod()))
        assert [row.node for row in found.pods] == ["b"]
        assert {path for path, _ in fake.requests} == {"try", "try-scores"}
        assert usual.requests == []
        plain = await whatif.ask(WhatIfQuestion("fits", objects=[pod()]))
        assert plain.placed == 1
        assert len(fake.requests) == 2
        whatif.close()


async def test_pods_are_asked_about_side_by_side():
    async with asking(*(f"n{i}" for i in range(40))) as world:
        names = [f"n{i}" for i in range(40)]
        whatif, fake, _ = asked(world, leaves(*names, seconds=0.01))
        started = world.clock.monotonic()
        found = await whatif.ask(question(workload(replicas=100)))
        assert found.placed == 100
        assert world.clock.monotonic() - started < 0.3
        assert len(fake.requests) == 200
        whatif.close()


async def test_an_extender_that_reserves_is_not_asked():
    async with asking("a") as world:
        whatif, _, usual = asked(world, leaves("a"), dry=DryRunConfig())
        with pytest.raises(RefusedError, match="test has no dryRun") as refused:
            await whatif.ask(question(pod()))
        assert refused.value.status == 422
        assert usual.requests == []
        assert (await whatif.ask(WhatIfQuestion("fits", objects=[pod()]))).placed == 1
        with pytest.raises(RefusedError, match="do not ask extenders"):
            await whatif.ask(WhatIfQuestion("drain", nodes=["a"], extenders=True))
        whatif.close()


async def test_why_an_extender_leaves_no_node():
    async with asking("a", "b") as world:
        whatif, _, _ = asked(
            world, lambda path, body: {"FailedNodes": {"a": "no licence", "b": "hot"}}
        )
        found = await whatif.ask(question(pod()))
        assert "no licence" in found.pods[0].message
        count = await whatif.ask(WhatIfQuestion("how-many", objects=[pod()], extenders=True))
        assert (count.count, "hot" in count.message) == (0, True)
        whatif.close()


async def test_changes_are_not_looked_for_where_an_extender_has_a_say():
    async with asking("a", "b") as world:
        whatif, dry, _ = asked(world, lambda path, body: {"FailedNodes": {"a": "no", "b": "no"}})
        found = await whatif.ask(question(pod(), changes=True))
        assert found.pods[0].suggestions == []
        assert any("changes are not looked for" in each for each in found.warnings)
        assert len(dry.requests) <= 2
        whatif.close()


async def test_changes_are_looked_for_for_the_pods_that_no_extender_judges():
    async with asking("a", "b") as world:
        gpus = (ManagedResource("example.com/gpu"),)
        refuses = {"FailedNodes": {"a": "no", "b": "no"}}
        whatif, _, _ = asked(world, lambda path, body: refuses, managed_resources=gpus)
        for name in ("a", "b"):
            node = world.state.table.nodes[world.state.table.row_of[name]]
            offered = {**node.status.allocatable, "example.com/gpu": 4}
            status = msgspec.structs.replace(node.status, allocatable=offered)
            world.change(Node, node, msgspec.structs.replace(node, status=status))
        judged = pod("first", containers=[box(cpu="1", **{"example.com/gpu": "1"})])
        found = await whatif.ask(question(judged, pod("large", cpu="100"), changes=True))
        first, large = sorted(found.pods, key=lambda row: row.name)
        assert "no" in first.message
        assert first.suggestions == []
        assert large.suggestions[0].changes[0].kind == "request"
        [warning] = [each for each in found.warnings if "changes are not looked for" in each]
        assert warning.startswith("pod default/first")
        whatif.close()


async def test_a_silent_extender_ends_with_the_time_of_the_question():
    async with asking("a") as world:
        whatif, _, _ = asked(world, leaves("a", seconds=30.0), http_timeout=60)
        started = world.clock.monotonic()
        found = await whatif.ask(question(pod(), timeout_seconds=2.0))
        assert world.clock.monotonic() - started == pytest.approx(2.0, abs=0.1)
        assert found.truncated
        assert found.pods[0].reason == "NotDecided"
        whatif.close()
