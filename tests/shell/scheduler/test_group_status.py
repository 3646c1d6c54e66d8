"""The status of a pod group is written in the words of the version that the API server has."""

import asyncio

import numpy as np
import pytest

from app.framework.testing import make_object, make_pod
from app.kube.writer import KubeWriter
from app.model.pod_groups import GROUP_LABEL, GroupKey, LabelledPodGroup, PodGroup
from app.scheduler.group_status import GroupStatusWriter
from app.state.pod_groups import PodGroups
from tests.shell.clock import LoopClock
from tests.shell.kube.fakes import FakeTransport, ok

pytestmark = pytest.mark.looptime

KEY = GroupKey(PodGroup, "default", "g")
NEWER = ("v1beta1", "PodGroupInitiallyScheduled")
VERSIONS = (NEWER, ("v1alpha3", NEWER[1]), ("v1alpha2", "PodGroupScheduled"))


def group(*conditions):
    manifest = {
        "metadata": {"name": "g", "namespace": "default", "uid": "u", "generation": 4},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
        "status": {"conditions": list(conditions)},
    }
    return make_object(PodGroup, manifest)


def condition(type_, status):
    return {"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}


def writing(groups, transport):
    """A writer and the tasks that it starts."""
    tasks = []
    return GroupStatusWriter(
        groups,
        KubeWriter(transport, may_write=lambda: True, rng=np.random.default_rng(1)),
        LoopClock(),
        lambda work, _name: tasks.append(asyncio.ensure_future(work)),
    ), tasks


async def written(version, existing, *outcomes):
    """What is sent for these outcomes, one after another."""
    groups, transport = PodGroups(), FakeTransport(handler=lambda _sent: ok({}))
    served = f"/apis/scheduling.k8s.io/{version}/podgroups" if version else ""
    groups.watch(PodGroup, lambda: served)
    groups.listers[PodGroup].store(existing)
    writer, tasks = writing(groups, transport)
    for outcome in outcomes:
        writer.put(KEY, *outcome, uid="u")
        await asyncio.gather(*tasks)
    return transport.sent


@pytest.mark.parametrize(("version", "type_"), VERSIONS)
async def test_the_condition_has_the_name_of_its_version(version, type_):
    (sent,) = await written(version, group(), ("unschedulable", "too few"))
    assert sent.path == f"/apis/scheduling.k8s.io/{version}/namespaces/default/podgroups/g/status"
    assert sent.body["metadata"] == {"uid": "u"}
    (found,) = sent.body["status"]["conditions"]
    del found["lastTransitionTime"]
    assert found == {
        "type": type_,
        "status": "False",
        "reason": "Unschedulable",
        "message": "too few",
        "observedGeneration": 4,
    }


@pytest.mark.parametrize(("version", "type_"), VERSIONS)
async def test_a_group_that_was_scheduled_stays_so(version, type_):
    assert not await written(version, group(condition(type_, "True")), ("error", "x"))
    other = next(each for _, each in VERSIONS if each != type_)
    assert await written(version, group(condition(other, "True")), ("error", "x"))


async def test_an_outcome_is_compared_with_what_was_written_last():
    """The watch does not show the message of the second outcome before the third one."""
    existing = group(
        condition(VERSIONS[-1][1], "False")
        | {"reason": "Unschedulable", "message": "too few", "observedGeneration": 4}
    )
    too_few, error = ("unschedulable", "too few"), ("error", "x")
    sent = await written("v1alpha2", existing, too_few, error, error, too_few, too_few)
    messages = [each.body["status"]["conditions"][0]["message"] for each in sent]
    assert messages == ["x", "too few"]


async def test_nothing_is_written_where_the_kind_is_not_served():
    assert not await written("", group(), ("scheduled", ""))


async def test_a_phase_is_written_once_where_the_api_server_drops_the_count():
    """The newer definitions of the scheduler plugins do not have status.scheduled."""
    manifest = {
        "metadata": {"name": "g", "namespace": "default", "uid": "u"},
        "spec": {"minMember": 3},
        "status": {"phase": "Scheduling"},
    }
    existing = make_object(LabelledPodGroup, manifest)
    groups, transport = PodGroups(), FakeTransport(handler=lambda _sent: ok({}))
    groups.watch(LabelledPodGroup, lambda: "/apis/scheduling.x-k8s.io/v1alpha1/podgroups")
    groups.listers[LabelledPodGroup].store(existing)
    groups.put(make_pod("p", labels={GROUP_LABEL: "g"}), scheduled=True)
    writer, tasks = writing(groups, transport)
    for _ in range(2):
        writer.put(KEY._replace(kind=LabelledPodGroup), "unschedulable", "x", uid="u")
        await asyncio.gather(*tasks)
    assert not transport.sent
    writer.put(KEY._replace(kind=LabelledPodGroup), "scheduled", "", uid="u")
    await asyncio.gather(*tasks)
    assert transport.sent[0].body["status"] == {"phase": "Scheduled", "scheduled": 1}


def made(name, uid):
    manifest = {
        "metadata": {"name": name, "namespace": "default", "uid": uid},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}},
    }
    return make_object(PodGroup, manifest)


async def behind_a_slow_patch(*outcomes):
    """What is written about group ``g`` with uid "second", with these outcomes (uid, result) put while another patch
    goes on.
    """
    groups, transport = PodGroups(), FakeTransport(handler=lambda _sent: ok({}))
    transport.latency = 2.0
    groups.watch(PodGroup, lambda: "/apis/scheduling.k8s.io/v1alpha2/podgroups")
    lister = groups.listers[PodGroup]
    lister.store(made("slow", "slow"))
    lister.store(first := made("g", "first"))
    writer, tasks = writing(groups, transport)
    writer.put(KEY._replace(name="slow"), "unschedulable", "x", uid="slow")
    await asyncio.sleep(0.1)
    for uid, result in outcomes:
        writer.put(KEY, result, uid, uid=uid)
    lister.remove(first)
    lister.store(made("g", "second"))
    await asyncio.gather(*tasks)
    return [sent.body for sent in transport.sent if sent.path.endswith("/g/status")]


async def test_an_outcome_is_not_written_to_a_successor_of_the_same_name():
    assert not await behind_a_slow_patch(("first", "scheduled"))


async def test_the_outcome_of_a_successor_replaces_one_that_waits():
    (sent,) = await behind_a_slow_patch(("first", "scheduled"), ("second", "unschedulable"))
    (found,) = sent["status"]["conditions"]
    assert sent["metadata"] == {"uid": "second"}
    assert (found["status"], found["message"]) == ("False", "second")
