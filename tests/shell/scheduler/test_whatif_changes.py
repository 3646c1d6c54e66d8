"""What must change: what is said about the usual reasons, and what it costs and leaves behind."""

import pytest

from app.framework.testing import make_node, make_object
from app.model.objects import Node, PodDisruptionBudget
from app.wire.whatif_v1 import RefusedError
from tests.shell.scheduler.test_whatif import asking, bound, box, pod, workload

pytestmark = pytest.mark.looptime


def told(row):
    """What is suggested, each as its changes and the node."""
    return [([change.text for change in each.changes], each.node) for each in row.suggestions]


async def why(world, *objects, **fields):
    """The first row of a pod that has no node."""
    found = await world.ask("fits", objects=list(objects), changes=True, **fields)
    return next(row for row in found.pods if not row.node)


async def test_a_request_as_large_as_the_roomiest_node_takes():
    async with asking("a", "b") as world:
        bound(world, "p", "a", cpu="1500m")
        bound(world, "q", "b", cpu="3")
        row = await why(world, pod(cpu="6"))
        assert told(row) == [(["request 2500m cpu in place of 6"], "a")]
        [change] = row.suggestions[0].changes
        path = "/spec/containers/0/resources/requests/cpu"
        assert change.patch == [{"op": "add", "path": path, "value": "2500m"}]


@pytest.mark.parametrize(("containers", "helped"), [(32, True), (33, False)])
async def test_requests_of_few_containers_are_made_smaller(containers, helped):
    async with asking("a") as world:
        boxes = [{**box(cpu="1"), "name": f"c{number}"} for number in range(containers)]
        row = await why(world, pod(containers=boxes))
        assert any("request 4 cpu" in text for texts, _ in told(row) for text in texts) is helped
        if helped:
            # No more of them than are needed.
            assert len(row.suggestions[0].changes[0].patch) == containers - 4


async def test_easy_changes_first_and_evictions_with_their_budgets_last():
    async with asking() as world:
        taint = {"key": "team", "value": "ml", "effect": "NoSchedule"}
        world.change(Node, None, make_node("tainted", spec={"taints": [taint]}))
        world.change(Node, None, make_node("cordoned", spec={"unschedulable": True}))
        world.add_nodes("full")
        bound(world, "p", "full", cpu="4", labels={"app": "web"})
        budget = {
            "metadata": {"name": "web", "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0},
        }
        world.change(PodDisruptionBudget, None, make_object(PodDisruptionBudget, budget))
        row = await why(world, pod(cpu="2"))
        assert told(row) == [
            (["request 0 cpu in place of 2"], "full"),
            (["tolerate the taint team=ml:NoSchedule"], "tainted"),
            (["uncordon node cordoned"], "cordoned"),
            (["evict default/p from node full"], "full"),
        ]
        eviction = row.suggestions[-1]
        assert [victim.name for victim in eviction.changes[0].evict] == ["p"]
        assert [(each.name, each.pods, each.allowed) for each in eviction.budgets] == [
            ("web", 1, 0)
        ]


async def test_a_label_of_one_node_or_less_to_select():
    async with asking("a", "b") as world:
        row = await why(world, pod(nodeSelector={"disk": "ssd"}))
        node = row.suggestions[0].node
        assert told(row) == [
            ([f"label node {node} disk=ssd"], node),
            (["drop disk=ssd from the nodeSelector"], row.suggestions[1].node),
        ]
        assert row.suggestions[0].changes[0].patch == [
            {"op": "add", "path": "/metadata/labels/disk", "value": "ssd"}
        ]


@pytest.mark.parametrize(
    ("requirement", "label"),
    [
        ({"operator": "In", "values": ["hdd", "ssd"]}, "disk=ssd"),
        ({"operator": "NotIn", "values": ["hdd"]}, "disk=ssd"),
        ({"operator": "NotIn", "values": ["ssd"]}, ""),
    ],
)
async def test_one_label_that_meets_all_that_is_said_of_its_key(requirement, label):
    terms = [{"matchExpressions": [{"key": "disk", **requirement}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    async with asking("a") as world:
        asked = pod(nodeSelector={"disk": "ssd"}, affinity={"nodeAffinity": required})
        found = [texts for texts, _ in told(await why(world, asked))]
        assert ([f"label node a {label}"] in found) is bool(label)


async def test_a_number_as_a_label():
    terms = [{"matchExpressions": [{"key": "cores", "operator": "Gt", "values": ["8"]}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    async with asking("a") as world:
        row = await why(world, pod(affinity={"nodeAffinity": required}))
        assert told(row)[0] == (["label node a cores=9"], "a")


async def test_a_label_on_one_node_where_all_with_it_would_have_to_share_the_pods():
    """With the label on b as well, spreading would want the pod there, where it has no room."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    async with asking() as world:
        for name in "ab":
            world.change(Node, None, make_node(name, labels={"kubernetes.io/hostname": name}))
        bound(world, "p", "a", cpu="1", labels={"app": "web"})
        bound(world, "q", "b", cpu="4", priority=2_000_000_000)
        asked = pod(nodeSelector={"disk": "ssd"}, topologySpreadConstraints=[constraint])
        asked["metadata"]["labels"] = {"app": "web"}
        assert (["label node a disk=ssd"], "a") in told(await why(world, asked))


async def test_a_pod_of_the_system_does_not_keep_others_from_being_evicted():
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    selector = {"labelSelector": {"matchLabels": {"app": "db"}}}
    near = {"podAffinity": {required: [selector | {"topologyKey": "kubernetes.io/hostname"}]}}
    everyone = {"labelSelector": {}}
    in_zone = {"podAntiAffinity": {required: [everyone | {"topologyKey": "zone"}]}}
    on_node = {
        "podAntiAffinity": {required: [everyone | {"topologyKey": "kubernetes.io/hostname"}]}
    }
    async with asking() as world:
        for name in "ab":
            world.change(
                Node, None, make_node(name, labels={"zone": "z", "kubernetes.io/hostname": name})
            )
        bound(world, "other", "a", cpu="1", affinity=in_zone)
        bound(world, "system", "a", priority=2_000_000_000, affinity=on_node)
        bound(world, "db", "b", cpu="1", labels={"app": "db"})
        row = await why(world, pod(affinity=near))
        assert (["evict default/other from node a"], "b") in told(row)


async def test_a_host_port_that_an_init_container_names_as_well():
    async with asking("a") as world:
        ports = [{"hostPort": 80, "containerPort": 80}]
        bound(world, "p", "a", containers=[{**box(cpu="1"), "ports": ports}])
        row = await why(
            world,
            pod(
                containers=[{**box(cpu="1"), "ports": ports}],
                initContainers=[{**box(cpu="1"), "name": "early", "ports": ports}],
            ),
        )
        assert (["do without host port 80 of container main"], "a") in told(row)
        assert not any("early" in text for texts, _ in told(row) for text in texts)


async def test_two_changes_where_one_is_not_enough():
    async with asking() as world:
        taints = [{"key": key, "effect": "NoSchedule"} for key in ("one", "two")]
        world.change(Node, None, make_node("a", spec={"taints": taints}))
        row = await why(world, pod())
        [suggestion] = row.suggestions
        texts = {change.text for change in suggestion.changes}
        assert texts == {"tolerate the taint one:NoSchedule", "tolerate the taint two:NoSchedule"}


async def test_a_reason_that_shows_only_when_pods_are_evicted():
    """The node names the filter that rejects first; preemption satisfies that one, and the next one rejects."""
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    term = {
        "labelSelector": {"matchLabels": {"app": "db"}},
        "topologyKey": "kubernetes.io/hostname",
    }
    async with asking("a") as world:
        bound(world, "p", "a", cpu="4")
        near = {"podAffinity": {required: [term]}}
        row = await why(world, pod(cpu="2", priority=5, affinity=near))
        assert told(row) == [
            (["drop the required affinity to other pods by kubernetes.io/hostname (term 1)"], "a")
        ]
        assert [victim.name for victim in row.suggestions[0].preempts] == ["p"]


async def test_a_gate():
    async with asking("a") as world:
        row = await why(world, pod(schedulingGates=[{"name": "quota"}]))
        assert row.reason == "Gated"
        assert told(row) == [(["remove the scheduling gate quota"], "a")]


async def test_the_pods_before_it_keep_their_nodes():
    async with asking("a", "b") as world:
        row = await why(world, workload(cpu="3", replicas=3))
        assert (["request 1 cpu in place of 3"], row.suggestions[0].node) == told(row)[0]


async def test_nothing_is_suggested_for_what_no_change_helps():
    async with asking("a") as world:
        volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "missing"}}]
        row = await why(world, pod(volumes=volumes))
        assert row.suggestions == []


async def test_nothing_is_looked_for_unasked_and_nothing_is_left_behind():
    async with asking("a") as world:
        before = world.state.changes
        found = await world.ask("fits", objects=[pod(cpu="9")])
        assert found.pods[0].suggestions == []
        await why(world, pod(cpu="9"))
        assert world.state.changes == before
        assert (await world.ask("fits", objects=[pod(cpu="4")])).placed == 1


async def test_pods_of_the_cluster_are_asked_about_by_name():
    async with asking("a", "b") as world:
        bound(world, "runs", "a", cpu="3")
        found = await world.ask("fits", pods=["default/runs"])
        assert [(row.name, row.node) for row in found.pods] == [("runs-1", "b")]
        found = await world.ask("fits", pods=["default/runs"], copies=3, changes=True)
        assert (found.placed, found.pending) == (1, 2)
        assert told(found.pods[1])[0][0] == ["request 1 cpu in place of 3"]
        with pytest.raises(RefusedError, match="is not found") as refused:
            await world.ask("fits", pods=["default/gone"])
        assert refused.value.status == 404
