"""What happens while an extender is called counts in the decision after it."""

import asyncio
import json

import msgspec
import pytest

from app.framework.testing import make_pod
from app.model.pod import Pod
from tests.shell.scheduler.test_gangs_with_extenders import everything, one_extender, slowly
from tests.shell.scheduler.test_group_cycle import bindings
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime

HOST = "kubernetes.io/hostname"
#: With 99 nodes all feasible nodes are sent and the scores are computed after the answer; with 130 before it as well.
NODES = (99, 130)


def web() -> Pod:
    """A pod that prefers hosts with cache pods."""
    term = {"topologyKey": HOST, "labelSelector": {"matchLabels": {"app": "cache"}}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    raw = {"metadata": {"name": "web", "namespace": "default", "uid": "web"}, "spec": {}}
    pod = make_pod("web", spec={"affinity": affinity})
    return msgspec.structs.replace(pod, raw=json.dumps(raw).encode())


@pytest.mark.parametrize("nodes", NODES)
async def test_a_preference_for_a_pod_that_came_during_the_call(nodes):
    make, made = one_extender(slowly(everything))
    async with running(extenders=make) as world:
        for number in range(nodes):
            world.add_nodes(f"n{number}", labels={HOST: f"n{number}"})
        work = asyncio.ensure_future(world.lead())
        world.add(web())
        async with asyncio.timeout(10):
            while not made[0].fake.requests:
                await asyncio.sleep(0.001)
        sent = made[0].fake.requests[0][1]["NodeNames"]
        world.add(make_pod("cache", labels={"app": "cache"}).on(sent[7]))
        await asyncio.sleep(1)
        work.cancel()
        await asyncio.wait([work])
        assert bindings(world) == {"web": sent[7]}
