"""An answer as tables, page and JSON."""

import io
import json
import re
from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from app.tools.pod_tracker import TrackedPod
from app.tools.simulate.loader import Group
from app.tools.simulate.page import as_page
from app.tools.simulate.result import (
    NodeUse,
    PreemptedPod,
    Reason,
    SimulationResult,
    Usage,
    WorkloadResult,
)
from app.tools.simulate.summary import node_uses, requested, workload
from app.tools.simulate.tables import (
    ReportTable,
    as_tables,
    remarks,
    report_tables,
    shown_amount,
    summary,
    warnings,
)
from tests.shell.tools.simulate.world import World, node, pod


def made_workload(name="web", *, placed=0, pending=0, evicted=0, message="no room", **fields):
    nodes = {f"n{number}": 1 for number in range(placed)}
    reasons = [Reason(pods=pending, message=message, is_decided=True)] if pending else []
    given = {
        "kind": "Deployment",
        "namespace": "shop",
        "name": name,
        "existing": 0,
        "pods": placed + pending + evicted,
        "placed": placed,
        "pending": pending,
        "evicted": evicted,
        "zones": {"z": placed} if placed else {},
        "nodes": nodes,
        "placements": [],
        "reasons": reasons,
    }
    return WorkloadResult(**(given | fields))


def made_answer(*workloads, **fields):
    given = {
        "is_complete": True,
        "seconds": 1.5,
        "workloads": list(workloads),
        "pending_before": [],
        "preempted": [],
        "nodes": [],
        "other_schedulers": {},
        "passed_over": {},
        "extenders_left_out": [],
        "warnings": [],
    }
    return SimulationResult(**(given | fields))


def made_node(name="n", before=0, after=0, **others):
    usage = Usage(allocatable=4000, before=before, after=after)
    memory, pods = (Usage(allocatable=1, before=0, after=0) for _ in range(2))
    return NodeUse(
        name=name, zone="z", resources={"cpu": usage, "memory": memory, "pods": pods} | others
    )


def victim(by="shop/vip", owner="ReplicaSet shop/batch"):
    return PreemptedPod(pod="shop/batch-1", owner=owner, priority=-5, node="n", by=by)


def named(found, start) -> ReportTable:
    return next(sheet for sheet in found if sheet.title.startswith(start))


# ---------------------------------------------------------------- what is worked out


def test_pods_of_a_workload_by_what_became_of_them():
    entries = [
        TrackedPod("shop/a", "w", node="n1"),
        TrackedPod("shop/b", "w", node="n1"),
        TrackedPod("shop/c", "w", node="gone"),
        TrackedPod("shop/d", "w", node="n1", is_gone=True),
        TrackedPod("shop/e", "w", rejection="no room"),
        TrackedPod("shop/f", "w", error="no route"),
        TrackedPod("shop/g", "w"),
    ]
    found = workload(Group("Job", "shop", "j", is_from_cluster=False), entries, {"n1": "z1"})
    assert (found.pods, found.placed, found.pending, found.evicted) == (7, 3, 3, 1)
    assert found.nodes == {"gone": 1, "n1": 2}
    assert found.zones == {"?": 1, "z1": 2}
    assert [p.pod for p in found.placements] == ["a", "b", "c"]
    assert {(r.message, r.is_decided) for r in found.reasons} == {
        ("no room", True),
        ("no route", False),
        ("not tried yet", False),
    }


def test_what_nodes_are_asked_for(tmp_path):
    world = World(
        tmp_path,
        node("a"),
        node("b"),
        pod("p", cpu="1500m", phase="Running", nodeName="a"),
        pod("done", cpu="1", phase="Succeeded", nodeName="a"),
        pod("waits", cpu="1", phase="Pending"),
    )
    before = requested(world.cluster)
    world.add(pod("q", nodeName="a"), pod("r", nodeName="b"))
    first, second = node_uses(world.cluster, before, requested(world.cluster))
    cpu, count = first.resources["cpu"], first.resources["pods"]
    assert (first.name, first.zone, first.is_changed) == ("a", "z", True)
    assert (cpu.allocatable, cpu.before, cpu.after, cpu.share) == (4000, 1500, 2500, 0.625)
    assert (count.allocatable, count.before, count.after) == (110, 1, 2)
    assert second.resources["cpu"].before == 0


def device_object(kind, name, spec, **status):
    metadata = {"name": name, "uid": name}
    if kind == "ResourceClaim":
        metadata["namespace"] = "shop"
    value = {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}
    return value | ({"status": status} if status else {})


def offering(name, *devices, generation=1, **reach):
    pool = {"name": "a", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": "gpu", "pool": pool, "devices": [{"name": each} for each in devices]}
    return device_object("ResourceSlice", name, spec | reach)


def holding(name, *devices, **fields):
    results = [
        {"request": "r", "driver": "gpu", "pool": "a", "device": d, **fields} for d in devices
    ]
    allocation = {"devices": {"results": results}}
    return device_object("ResourceClaim", name, {"devices": {}}, allocation=allocation)


def test_the_devices_of_nodes_are_counted_by_driver(tmp_path):
    world = World(
        tmp_path,
        node("a"),
        node("b"),
        offering("s", "d1", "d2", "d3", generation=2, nodeName="a"),
        offering("outdated", "d1", "d4", nodeName="b"),
        offering("wide", "w", generation=2, allNodes=True),
        holding("two", "d1", "d2"),
        holding("same", "d2"),
        holding("admin", "d3", adminAccess=True),
        holding("elsewhere", "w"),
        device_object("ResourceClaim", "free", {"devices": {}}),
    )
    uses = requested(world.cluster)
    first, second = node_uses(world.cluster, {}, uses)
    found = first.resources["gpu"]
    assert (found.allocatable, found.before, found.after) == (3, 0, 2)
    assert "gpu" not in second.resources


def test_what_stands_for_devices_is_not_told_twice(tmp_path):
    named = device_object("DeviceClass", "c", {"extendedResourceName": "example.com/gpu"})
    world = World(tmp_path, node("a"), named)
    names = ("example.com/gpu", "deviceclass.resource.kubernetes.io/c", "example.com/other")
    (use,) = node_uses(world.cluster, {}, {"a": dict.fromkeys(names, 1)})
    assert set(names) & use.resources.keys() == {"example.com/other"}


@pytest.mark.parametrize(
    ("resource", "amount", "shown"),
    [
        ("cpu", 0, "0"),
        ("cpu", 250, "0.25"),
        ("cpu", 10000, "10"),
        ("memory", 1023, "1023"),
        ("memory", 2**30, "1Gi"),
        ("ephemeral-storage", 3 * 2**29, "1.5Gi"),
        ("hugepages-2Mi", 2**22, "4Mi"),
        ("memory", 2**60, "1024Pi"),
        ("example.com/gpu", 12, "12"),
    ],
)
def test_amounts(resource, amount, shown):
    assert shown_amount(resource, amount) == shown


# ---------------------------------------------------------------- what is said


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (made_answer(made_workload(placed=1)), "1 of 1 pods get a node."),
        (
            made_answer(made_workload(existing=3)),
            "There is nothing to place: the workload has no pods, or the cluster has them already.",
        ),
        (
            made_answer(made_workload(placed=3, pending=1), preempted=[victim()]),
            "3 of 4 pods get a node, 1 stay pending, 1 pod of the cluster is preempted.",
        ),
        (
            made_answer(made_workload(placed=1, evicted=1), preempted=[victim(), victim()]),
            "1 of 2 pods get a node, 1 are preempted by others, 1 pod of the cluster is preempted.",
        ),
    ],
    ids=["placed", "nothing", "pending", "own victims"],
)
def test_the_sentence(answer, said):
    assert summary(answer) == said


def test_placed_means_every_pod_to_the_end():
    assert made_answer(made_workload(placed=1)).is_placed
    assert not made_answer(made_workload(placed=1, pending=1)).is_placed
    assert not made_answer(made_workload(placed=1, evicted=1)).is_placed
    assert not made_answer(made_workload(placed=1), is_complete=False).is_placed


def test_a_few_nodes_by_name_many_by_zone():
    few = made_workload(placed=2, nodes={"a": 1, "b": 5})
    many = made_workload(placed=4, zones={"x": 1, "y": 3})
    nowhere = made_workload(placed=4, zones={"?": 4})
    sheet = named(report_tables(made_answer(few, many, nowhere)), "Where")
    assert [row[-1] for row in sheet.rows] == ["a, b: 5", "x, y: 3 on 4 nodes", "4 nodes"]
    assert sheet.columns == ("workload", "pods", "placed", "pending", "where")


def test_columns_that_say_something():
    answer = made_answer(made_workload(placed=1, existing=2), made_workload(evicted=1))
    sheet = named(report_tables(answer), "Where")
    assert sheet.columns[4:6] == ("preempted", "already there")
    assert [row[4:6] for row in sheet.rows] == [("-", "2"), ("1", "-")]


def test_pending_pods_come_with_the_reason():
    undecided = Reason(pods=2, message="no route", is_decided=False)
    answer = made_answer(
        made_workload(pending=3),
        pending_before=[made_workload("old", pending=2, reasons=[undecided])],
    )
    assert named(report_tables(answer), "Pending,").rows == [
        ("3", "Deployment shop/web", "no room"),
        ("2", "Deployment shop/old", "not decided: no route"),
    ]


def test_the_terminal_gets_the_fullest_nodes_that_changed():
    nodes = [made_node(f"n{i}", after=i * 100) for i in range(5)] + [made_node("same", 9000, 9000)]
    answer = made_answer(nodes=nodes)
    short, full = (
        named(report_tables(answer, most=2), "Nodes"),
        named(report_tables(answer), "Nodes"),
    )
    assert [row[0] for row in short.rows] == ["n4", "n3"]
    assert short.note == "and 4 nodes that are less full or did not change"
    assert [row[0] for row in full.rows] == [each.name for each in nodes]
    assert full.rows[4][3] == "0 → 0.4 of 4"
    assert full.rows[5][3] == "9 of 4"
    still = made_answer(nodes=[made_node("a", 1, 1), made_node("b", 2, 2)])
    assert [row[0] for row in named(report_tables(still, most=1), "Nodes").rows] == ["b"]


def test_other_resources_have_a_column_where_they_are_used():
    gpu = {"example.com/gpu": Usage(allocatable=4, before=1, after=3)}
    spare = {"example.com/gpu": Usage(allocatable=4, before=0, after=0)}
    answer = made_answer(nodes=[made_node("a", **gpu), made_node("b", **spare)])
    assert [row[5] for row in named(report_tables(answer), "Nodes").rows] == [
        "example.com/gpu 1 → 3 of 4",
        "",
    ]
    without = made_answer(nodes=[made_node("b", **spare)])
    assert "other" not in named(report_tables(without), "Nodes").columns


def test_victims():
    sheet = named(report_tables(made_answer(preempted=[victim()] * 3), most=2), "Preempted")
    assert sheet.rows == [("shop/batch-1", "ReplicaSet shop/batch", "-5", "n", "shop/vip")] * 2
    assert sheet.note == "and 1 more; their owners would make new ones, which are not simulated"
    assert named(report_tables(made_answer(preempted=[victim(owner="")])), "Preempted").note == ""


def test_warnings_and_remarks():
    reason = Reason(pods=2, message="not tried yet", is_decided=False)
    answer = made_answer(
        made_workload(pending=2, reasons=[reason]),
        is_complete=False,
        extenders_left_out=["http://a", "http://b"],
        warnings=["c.yaml:3: old"],
        other_schedulers={"volcano": 2},
        passed_over={"Event": 9, "Secret": 1},
    )
    first, second, third = warnings(answer)
    assert first == (
        "the time was up after 2 s, before all was decided; 2 of Deployment shop/web: not tried yet"
    )
    assert second.endswith("http://a, http://b")
    assert third == "c.yaml:3: old"
    assert list(remarks(answer)) == [
        "2 pods are for volcano, which has no profile here.",
        "Ignored, because scheduling does not read them: 9 Event, 1 Secret.",
    ]


def test_the_terminal_shows_the_tables():
    console = Console(file=io.StringIO(), width=200)
    answer = made_answer(made_workload(placed=1, pending=1), nodes=[made_node(after=1)])
    console.print(as_tables(answer))
    shown = console.file.getvalue()
    assert re.search(r"^Deployment shop/web +2 +1 +1 +n0", shown, re.MULTILINE)
    assert "Pending, and why" in shown
    assert shown.rstrip().endswith("1 of 2 pods get a node, 1 stay pending.")


# ---------------------------------------------------------------- page and JSON


class Reader(HTMLParser):
    """Checks that tags are closed in order, and notes texts and addresses."""

    def __init__(self):
        super().__init__()
        self.open, self.texts, self.attributes = [], [], []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in {"meta", "input"}:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def read_page(page):
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    return reader


@settings(max_examples=50)
@given(st.text(min_size=1).filter(lambda text: "\r" not in text and "\0" not in text))
def test_whatever_is_in_the_dump_the_page_says_it_and_no_more(text):
    page, plain = read_page(page_with(text)), read_page(page_with("x"))
    assert [name for name, _ in page.attributes] == [name for name, _ in plain.attributes]
    assert page.texts.count(text) >= 4


def page_with(text):
    """A page on which every free text is this."""
    answer = made_answer(
        made_workload(text, pending=1, message=text),
        nodes=[made_node(text, after=1)],
        warnings=[text],
        preempted=[victim(by=text)],
    )
    return as_page(answer, text)


def test_the_page_stands_alone():
    page = as_page(made_answer(made_workload(placed=1), nodes=[made_node(after=9000)]), "t")
    assert set(re.findall(r"https?://[^\"]+", page)) <= {"http://www.w3.org/2000/svg"}
    assert "import " not in re.sub(r"(?m)^ *//.*|/\*.*?\*/", "", page)
    names = dict(read_page(page).attributes)
    assert not {"src", "href"} & names.keys()


def test_nodes_of_the_page_are_data():
    """Whatever their names are."""
    name = "</script><b>&amp;\u2028"
    page = as_page(made_answer(made_workload(placed=1), nodes=[made_node(name, after=9000)]), "t")
    (data,) = re.findall(r'id="nodes">(.*?)</script>', page)
    (node,) = json.loads(data)
    assert node["name"] == name
    assert node["resources"]["cpu"] == {"allocatable": 4000, "before": 0, "after": 9000}


def test_workloads_that_stay_pending_are_marked():
    page = as_page(made_answer(made_workload(placed=1), made_workload(pending=1)), "t")
    assert page.count('<tr class="pending">') == 1


def test_the_json_has_the_documented_names():
    told = made_answer(
        made_workload(pending=1), nodes=[made_node()], preempted=[victim()], passed_over={"A": 1}
    )
    answer = json.loads(msgspec.json.encode(told))
    assert answer["version"] == 1
    assert list(answer) == [
        *("version", "isComplete", "seconds", "workloads", "pendingBefore", "groups", "preempted"),
        *("nodes", "otherSchedulers", "passedOver", "extendersLeftOut", "warnings", "rules"),
    ]
    assert list(answer["workloads"][0]) == [
        *("kind", "namespace", "name", "existing", "pods", "placed", "pending", "evicted"),
        *("zones", "nodes", "placements", "reasons"),
    ]
    assert answer["workloads"][0]["reasons"] == [
        {"pods": 1, "message": "no room", "isDecided": True}
    ]
    assert list(answer["preempted"][0]) == ["pod", "owner", "priority", "node", "by"]
    assert answer["nodes"][0]["resources"]["cpu"] == {"allocatable": 4000, "before": 0, "after": 0}
