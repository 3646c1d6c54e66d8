"""Writes against a scripted server on a virtual clock: lost answers above all."""

import asyncio
import json

import numpy as np
import pytest

from app.framework.testing import make_object
from app.kube.errors import (
    SETTLED,
    AlreadyExists,
    Conflict,
    ConnectionFailed,
    KubeApiError,
    NotFound,
    NotLeading,
    ServerUnavailable,
    StatusCause,
    StatusDetails,
)
from app.kube.payloads import ConditionChange, object_patch, pod_status_patch
from app.kube.transport import MERGE_PATCH, STRATEGIC_MERGE_PATCH, Response
from app.kube.writer import BIND_ATTEMPTS, WRITE_ATTEMPTS, KubeWriter
from app.model.objects import PodCondition
from app.model.pod import make_pod
from app.model.pod_groups import PodGroup
from app.model.status import SUCCESS
from tests.shell.kube.fakes import FakeTransport, ok, refused

pytestmark = pytest.mark.looptime

POD = "/api/v1/namespaces/shop/pods/web-1"
BINDING = f"{POD}/binding"

REFUSED = ConnectionFailed("connection refused", sent=False)
LOST = {
    "disconnect": ConnectionFailed("POST: server disconnected", sent=True),
    "timeout": ConnectionFailed("POST: no answer in time", sent=True),
    "500": refused(500, "etcdserver: leader changed", "InternalError"),
    "502": refused(502),
    "503": refused(503, "apiserver is shutting down", "ServiceUnavailable"),
    "504": refused(504, "Timeout: request did not complete", "Timeout"),
}
lost = pytest.mark.parametrize("trouble", LOST.values(), ids=LOST)


class ServerSide:
    """The pod as the server has it, and what becomes of each POST: done or not, and with what answer."""

    def __init__(self, *bindings, uid="u1", node="", lookups=()):
        self.node = node
        self.uid = uid
        self.bindings = list(bindings)
        self.lookups = list(lookups)
        self.exists = True

    def __call__(self, sent):
        if sent.method == "GET":
            if self.lookups:
                return self.lookups.pop(0)
            if not self.exists:
                return refused(404, 'pods "web-1" not found', "NotFound")
            return ok({"metadata": {"uid": self.uid}, "spec": {"nodeName": self.node}})
        done, answer = self.bindings.pop(0) if self.bindings else (True, ok(status=201))
        if done and self.node:
            return refused(409, f'pod web-1 is already assigned to node "{self.node}"', "Conflict")
        if done:
            self.node = sent.body["target"]["name"]
        return answer


def writer_of(transport, may_write=lambda: True, pods=None):
    return KubeWriter(transport, may_write=may_write, rng=np.random.default_rng(5), pods=pods)


async def bind(server, pods=None):
    transport = FakeTransport(handler=server)
    result = await writer_of(transport, pods=pods).bind("shop", "web-1", "u1", "n1")
    return result, [sent.method for sent in transport.sent]


def shown(node="", uid="u1"):
    """The pod as the watch shows it."""
    return {"shop/web-1": make_pod(namespace="shop", name="web-1", uid=uid, node_name=node)}


async def test_a_binding(looptime):
    transport = FakeTransport(handler=ServerSide())
    result = await writer_of(transport).bind("shop", "web-1", "u1", "n1")
    assert result == SUCCESS
    (sent,) = transport.sent
    assert (sent.method, sent.path, sent.content_type) == ("POST", BINDING, "application/json")
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u1"},
        "target": {"kind": "Node", "name": "n1"},
    }
    assert looptime == 0


@lost
async def test_lost_but_done_is_success(trouble):
    result, methods = await bind(ServerSide((True, trouble)))
    assert result.ok
    assert methods == ["POST", "GET"]


@lost
async def test_lost_and_not_done_is_sent_again(trouble, looptime):
    result, methods = await bind(ServerSide((False, trouble)))
    assert result.ok
    assert methods == ["POST", "GET", "POST"]
    assert 0 < looptime < 0.2


@lost
async def test_lost_and_bound_elsewhere_is_failure(trouble):
    result, methods = await bind(ServerSide((False, trouble), node="n2"))
    assert not result.ok
    assert result.message == (
        'Operation cannot be fulfilled on pods/binding "web-1": '
        'pod web-1 is already assigned to node "n2"'
    )
    assert methods == ["POST", "GET"]


@lost
async def test_lost_and_gone_is_failure(trouble):
    server = ServerSide((False, trouble))
    server.exists = False
    result, methods = await bind(server)
    assert (result.ok, result.message) == (False, 'pods "web-1" not found')
    assert methods == ["POST", "GET"]


@lost
async def test_lost_and_recreated_is_failure(trouble):
    result, _ = await bind(ServerSide((False, trouble), uid="another", node="n1"))
    assert not result.ok
    assert "another pod has taken the name" in result.message


@lost
async def test_lost_again_and_again_is_failure_in_the_end(trouble, looptime):
    """A request without an answer may take effect late, so the pod is looked up for as long as that can be."""
    result, methods = await bind(ServerSide(*[(False, trouble)] * 20))
    assert not result.ok
    assert result.message == str(trouble)
    assert methods[: 2 * BIND_ATTEMPTS] == ["POST", "GET"] * BIND_ATTEMPTS
    assert set(methods[2 * BIND_ATTEMPTS :]) == {"GET"}
    assert SETTLED < looptime < SETTLED + 5


@lost
async def test_an_effect_that_comes_late_is_seen(trouble, looptime):
    server = ServerSide(*[(False, trouble)] * 20)
    asyncio.get_running_loop().call_later(50, lambda: setattr(server, "node", "n1"))
    result, methods = await bind(server)
    assert (result.ok, methods.count("POST")) == (True, BIND_ATTEMPTS)
    assert 50 <= looptime < 55


async def test_an_effect_that_comes_late_after_a_refusal_is_seen():
    """What the last request ended with says nothing about those before."""
    server = ServerSide((False, LOST["timeout"]), (False, refused(403, "forbidden", "Forbidden")))
    asyncio.get_running_loop().call_later(50, lambda: setattr(server, "node", "n1"))
    result, methods = await bind(server)
    assert (result.ok, methods.count("POST")) == (True, 2)


async def test_an_effect_that_comes_late_after_a_conflict_is_seen():
    words = "the object has been modified"
    server = ServerSide((False, LOST["timeout"]), (False, refused(409, words, "Conflict")))
    asyncio.get_running_loop().call_later(50, lambda: setattr(server, "node", "n1"))
    result, methods = await bind(server)
    assert (result.ok, methods.count("POST")) == (True, 2)


async def test_a_webhook_that_fails_is_waited_for_no_longer(looptime):
    """That comes before anything is stored. The name of a pod does not pretend it."""
    words = 'Internal error occurred: failed calling webhook "a.example": failed to call webhook'
    result, methods = await bind(ServerSide(*[(False, refused(500, words, "InternalError"))] * 9))
    assert (result.ok, result.message) == (False, words)
    assert methods == ["POST"] * BIND_ATTEMPTS
    assert looptime < 4


async def test_other_internal_errors_are_looked_up():
    words = 'etcdserver: "failed calling webhook" timed out'
    result, methods = await bind(ServerSide((True, refused(500, words, "InternalError"))))
    assert (result.ok, methods) == (True, ["POST", "GET"])


@pytest.mark.parametrize("done", [True, False])
async def test_an_answer_that_no_api_server_gives_is_looked_up(done):
    garbage = Response(200, b"<html>Welcome</html>")
    result, methods = await bind(ServerSide((done, garbage)))
    assert result.ok
    assert methods == (["POST", "GET"] if done else ["POST", "GET", "POST"])


async def test_done_late_after_it_was_given_up_is_success():
    """The first request is still on its way when the second is sent: the conflict is with ourselves."""
    server = ServerSide((False, LOST["timeout"]))
    transport = FakeTransport()

    def answer(sent):
        reply = server(sent)
        if sent.method == "GET" and len(transport.sent) == 2:
            server.node = "n1"
        return reply

    transport.handler = answer
    result = await writer_of(transport).bind("shop", "web-1", "u1", "n1")
    assert result.ok
    assert [sent.method for sent in transport.sent] == ["POST", "GET", "POST", "GET"]


async def test_a_conflict_with_another_node():
    result, methods = await bind(ServerSide(node="n2"))
    assert not result.ok
    assert 'already assigned to node "n2"' in result.message
    assert methods == ["POST", "GET"]


async def test_a_conflict_of_another_kind_is_told_in_the_servers_words():
    words = "pod web-1 is being deleted, cannot be assigned to a host"
    result, methods = await bind(ServerSide((False, refused(409, words, "Conflict"))))
    assert (result.ok, result.message) == (False, words)
    assert methods == ["POST", "GET"]


@pytest.mark.parametrize("status", [400, 403, 404, 422])
async def test_a_refusal_is_final(status):
    result, methods = await bind(ServerSide((False, refused(status, "no way"))))
    assert (result.ok, result.message, methods) == (False, "no way", ["POST"])


async def test_what_never_left_is_sent_again_without_a_lookup():
    result, methods = await bind(ServerSide((False, REFUSED), (False, REFUSED)))
    assert result.ok
    assert methods == ["POST"] * 3


async def test_a_server_that_stays_away_is_given_up(looptime):
    result, methods = await bind(ServerSide(*[(False, REFUSED)] * 20))
    assert not result.ok
    assert methods == ["POST"] * BIND_ATTEMPTS
    assert looptime < 4


async def test_doubt_is_not_given_up(looptime):
    """Twenty seconds without a server: nobody can have bound the pod elsewhere, and it may be bound here."""
    down = [REFUSED] * 15
    result, methods = await bind(ServerSide((True, LOST["disconnect"]), lookups=down))
    assert result.ok
    assert methods == ["POST"] + ["GET"] * 16
    assert looptime > 20


NO_ANSWERS = {
    "401": refused(401, "Unauthorized", "Unauthorized"),
    "403": refused(403, "pods is forbidden: RBAC: clusterrole not found", "Forbidden"),
    "404 of a load balancer": refused(404, "the server answered 404 without details"),
    "400": refused(400),
    "302": refused(302),
    "500": refused(500),
    "429": refused(429),
    "a page": Response(200, b"<html>Sign in</html>"),
    "an empty object": ok({}),
    "nesting": Response(200, b'{"a":' * 50_000),
    "another type": ok({"metadata": {"uid": 5}}),
}
no_answer = pytest.mark.parametrize("answer", NO_ANSWERS.values(), ids=NO_ANSWERS)


@no_answer
@pytest.mark.parametrize("done", [True, False])
async def test_what_does_not_answer_a_lookup(done, answer):
    """An API server answers 401 and 403 while it starts: the pod may be bound all the same."""
    server = ServerSide((done, LOST["timeout"]), lookups=[answer] * 40)
    result, methods = await bind(server)
    assert result.ok
    assert methods == ["POST"] + ["GET"] * 41 + ["POST"] * (not done)


@no_answer
@pytest.mark.parametrize(
    ("pods", "bound", "message"),
    [
        (shown("n1"), True, ""),
        (shown("n2"), False, 'already assigned to node "n2"'),
        (shown(uid="u2"), False, "another pod has taken the name"),
        ({}, False, 'pods "web-1" not found'),
    ],
    ids=["bound", "bound elsewhere", "recreated", "gone"],
)
async def test_the_watch_ends_a_lookup(answer, pods, bound, message, looptime):
    known = shown()
    server = ServerSide((True, LOST["timeout"]), lookups=[answer] * 1000)

    def show():
        known.clear()
        known.update(pods)

    asyncio.get_running_loop().call_later(200, show)
    result, methods = await bind(server, known)
    assert (result.ok, methods[:2]) == (bound, ["POST", "GET"])
    assert message in result.message
    assert 200 <= looptime < 205


async def test_a_deeply_nested_pod_is_an_answer():
    """Whoever creates a pod chooses what is in its managedFields."""
    nested = b"[" * 10_000 + b"]" * 10_000
    pod = b'{"metadata":{"managedFields":' + nested + b',"uid":"u1"},"spec":{"nodeName":"n1"}}'
    result, _ = await bind(ServerSide((True, LOST["timeout"]), lookups=[Response(200, pod)]))
    assert result.ok


async def test_a_pod_that_the_watch_has_lost_is_looked_up():
    """It may have ended: the watch leaves such pods out."""
    result, _ = await bind(ServerSide((True, LOST["timeout"])), pods={})
    assert result.ok


async def test_doubts_are_shown(caplog):
    transport = FakeTransport(
        handler=ServerSide((True, LOST["timeout"]), lookups=[NO_ANSWERS["403"]] * 40)
    )
    writer = writer_of(transport)
    binding = asyncio.create_task(writer.bind("shop", "web-1", "u1", "n1"))
    await asyncio.sleep(30)
    (doubt,) = writer.doubts
    assert (doubt.pod, doubt.node, doubt.since) == ("shop/web-1", "n1", 0.0)
    assert doubt.error == "pods is forbidden: RBAC: clusterrole not found"
    await binding
    assert writer.doubts == []
    (record,) = (r for r in caplog.records if r.levelname == "WARNING")
    assert "pod shop/web-1 is bound to node n1 is not known for 1" in record.message


async def test_an_ended_lookup_leaves_no_doubt():
    transport = FakeTransport(handler=ServerSide((False, LOST["timeout"]), lookups=[REFUSED] * 999))
    writer = writer_of(transport)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(30):
            await writer.bind("shop", "web-1", "u1", "n1")
    assert writer.doubts == []


# ---------------------------------------------------------------- bound by somebody else


def pod_on_the_way():
    return make_pod(namespace="shop", name="web-1", uid="u1")


async def test_where_a_pod_is_bound():
    transport = FakeTransport(handler=ServerSide(node="n2", lookups=[NO_ANSWERS["403"]] * 9))
    assert await writer_of(transport).bound_to(pod_on_the_way(), "n1") == "n2"
    assert (
        await writer_of(FakeTransport(handler=ServerSide())).bound_to(pod_on_the_way(), "n1")
        is None
    )
    with pytest.raises(NotFound):
        await writer_of(FakeTransport(handler=ServerSide(uid="u2"))).bound_to(
            pod_on_the_way(), "n1"
        )


async def test_a_binding_by_somebody_else_is_waited_for(looptime):
    server = ServerSide()
    asyncio.get_running_loop().call_later(20, lambda: setattr(server, "node", "n1"))
    writer = writer_of(FakeTransport(handler=server))
    assert await writer.bound_to(pod_on_the_way(), "n1", settle=5) is None
    assert looptime == pytest.approx(5)
    assert await writer.bound_to(pod_on_the_way(), "n1", settle=30) == "n1"
    assert writer.doubts == []


async def test_an_answer_that_took_longer_than_the_wait_is_of_before_it(looptime):
    server, first = ServerSide(), True

    class Slow(FakeTransport):
        async def request(self, *args, **fields):
            nonlocal first
            answer = await super().request(*args, **fields)
            if first:
                first, server.node = False, "n1"
                await asyncio.sleep(6)
            return answer

    writer = writer_of(Slow(handler=server))
    assert await writer.bound_to(pod_on_the_way(), "n1", settle=5) == "n1"
    assert looptime == pytest.approx(6)


# ---------------------------------------------------------------- leading


async def test_who_does_not_lead_does_not_write():
    transport = FakeTransport(handler=ServerSide())
    writer = writer_of(transport, may_write=lambda: False)
    pod = make_pod(namespace="shop", name="web-1", uid="u1")
    writes = [
        writer.bind("shop", "web-1", "u1", "n1"),
        writer.patch_pod_status(pod, nominated_node_name="n1", now=0),
        writer.delete_pod("shop", "web-1", "u1"),
        writer.patch_persistent_volume("pv", resource_version="1", changes={}),
        writer.patch_persistent_volume_claim("shop", "c", resource_version="1", changes={}),
    ]
    for write in writes:
        with pytest.raises(NotLeading):
            await write
    assert transport.sent == []


@pytest.mark.parametrize("late", [False, True])
async def test_a_lease_lost_between_attempts(late):
    """Nothing more is written, but it is still found out what became of what was."""
    leading, server = True, ServerSide((False, LOST["timeout"]))

    def lose_it(sent):
        nonlocal leading
        leading = False
        return server(sent)

    if late:
        asyncio.get_running_loop().call_later(50, lambda: setattr(server, "node", "n1"))
    transport = FakeTransport(handler=lose_it)
    bound = writer_of(transport, lambda: leading).bind("shop", "web-1", "u1", "n1")
    if late:
        assert (await bound).ok
    else:
        with pytest.raises(NotLeading):
            await bound
    assert [sent.method for sent in transport.sent].count("POST") == 1


async def test_a_binding_can_be_cancelled():
    transport = FakeTransport(handler=ServerSide((False, LOST["timeout"]), lookups=[REFUSED] * 999))
    task = asyncio.create_task(writer_of(transport).bind("shop", "web-1", "u1", "n1"))
    await asyncio.sleep(30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# ---------------------------------------------------------------- status

WANTED = ConditionChange("PodScheduled", "False", "Unschedulable", "0/3 nodes are available")
EARLIER = "2023-11-14T22:13:20Z"


def condition(**changed):
    said = {**WANTED._asdict(), "last_transition_time": EARLIER, **changed}
    return PodCondition(**said)


def patch_of(pod, change=WANTED, nominated=None):
    body = pod_status_patch(pod, condition=change, nominated_node_name=nominated, now=1_700_000_060)
    if body is None:
        return None
    patch = json.loads(body)
    assert patch["metadata"] == {"uid": pod.uid}
    return patch["status"]


def test_a_first_condition():
    assert patch_of(make_pod(namespace="a", name="b", uid="u", generation=3)) == {
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/3 nodes are available",
                "lastTransitionTime": "2023-11-14T22:14:20Z",
                "observedGeneration": 3,
            }
        ]
    }


@pytest.mark.parametrize(
    ("old", "transition"),
    [
        (condition(message="0/2 nodes are available"), EARLIER),
        (condition(reason="SchedulerError"), EARLIER),
        (condition(status="True"), "2023-11-14T22:14:20Z"),
    ],
    ids=["message", "reason", "status"],
)
def test_the_transition_time_is_that_of_the_status(old, transition):
    pod = make_pod(namespace="a", name="b", uid="u", conditions=(old,))
    (changed,) = patch_of(pod)["conditions"]
    assert changed["lastTransitionTime"] == transition


def test_what_is_said_already_is_not_said_again():
    pod = make_pod(
        namespace="a",
        name="b",
        uid="u",
        generation=9,
        conditions=(condition(),),
        nominated_node_name="n1",
    )
    assert patch_of(pod) is None
    assert patch_of(pod, nominated="n1") is None


def test_nominations():
    pod = make_pod(namespace="a", name="b", uid="u", nominated_node_name="n1")
    assert patch_of(pod, None, "n2") == {"nominatedNodeName": "n2"}
    assert patch_of(pod, None, "") == {"nominatedNodeName": None}
    assert patch_of(pod, None, None) is None


def unscheduled():
    return make_pod(namespace="shop", name="web-1", uid="u1")


async def test_a_status_patch():
    transport = FakeTransport(handler=lambda sent: ok())
    writer = writer_of(transport)
    assert await writer.patch_pod_status(unscheduled(), condition=WANTED, now=0) is True
    (sent,) = transport.sent
    assert (sent.method, sent.path) == ("PATCH", f"{POD}/status")
    assert sent.content_type == STRATEGIC_MERGE_PATCH


async def test_no_change_no_request():
    transport = FakeTransport()
    assert await writer_of(transport).patch_pod_status(unscheduled(), now=0) is False
    assert transport.sent == []


@pytest.mark.parametrize(
    "trouble", [refused(500), refused(503), refused(409), REFUSED, LOST["timeout"]]
)
async def test_a_status_patch_is_tried_four_times(trouble, looptime):
    transport = FakeTransport(handler=lambda sent: trouble)
    with pytest.raises(KubeApiError) as caught:
        await writer_of(transport).patch_pod_status(unscheduled(), condition=WANTED, now=0)
    assert caught.value is trouble
    assert [sent.method for sent in transport.sent].count("PATCH") == WRITE_ATTEMPTS
    assert 0.31 <= looptime <= 0.31 * 1.1 + 1e-9


async def test_a_status_patch_that_is_refused_is_not_repeated():
    transport = FakeTransport(handler=lambda sent: refused(404, "no", "NotFound"))
    with pytest.raises(NotFound):
        await writer_of(transport).patch_pod_status(unscheduled(), condition=WANTED, now=0)
    assert len(transport.sent) == 1


OTHER_UID = refused(
    422,
    'Pod "web-1" is invalid: metadata.uid: Invalid value: "u1": field is immutable',
    "Invalid",
    details=StatusDetails(causes=(StatusCause(field="metadata.uid"),)),
)


async def test_a_status_patch_for_a_pod_that_was_replaced(looptime):
    transport = FakeTransport(handler=lambda sent: OTHER_UID)
    writer = writer_of(transport)
    with pytest.raises(NotFound, match="another pod has taken the name"):
        await writer.patch_pod_status(unscheduled(), condition=WANTED, now=0)
    with pytest.raises(NotFound, match="another pod has taken the name"):
        await writer.patch_extended_claim_status(unscheduled(), {})
    assert [sent.body["metadata"] for sent in transport.sent] == [{"uid": "u1"}] * 2


@pytest.mark.parametrize(
    ("found", "error"),
    [
        (refused(404, "gone", "NotFound"), NotFound),
        (ok({"metadata": {"uid": "u2"}}), NotFound),
        (ok({"metadata": {"uid": "u1"}}), Conflict),
        (refused(403), Conflict),
        (refused(404), Conflict),
    ],
)
async def test_a_status_patch_with_conflicts(found, error):
    transport = FakeTransport(
        handler=lambda sent: refused(409, "no", "Conflict") if sent.method == "PATCH" else found
    )
    with pytest.raises(error):
        await writer_of(transport).patch_pod_status(unscheduled(), condition=WANTED, now=0)


@pytest.mark.parametrize(
    "write",
    [
        lambda writer: writer.patch_pod_status(unscheduled(), condition=WANTED, now=0),
        lambda writer: writer.delete_pod("shop", "web-1", "u1"),
    ],
)
async def test_a_404_of_a_load_balancer_does_not_mean_gone(write):
    transport = FakeTransport(handler=lambda sent: refused(404))
    with pytest.raises(KubeApiError) as caught:
        await write(writer_of(transport))
    assert not isinstance(caught.value, NotFound)


# ---------------------------------------------------------------- deletion, volumes


@pytest.mark.parametrize(
    ("answer", "expected"), [(ok(), True), (refused(404, "no", "NotFound"), False)]
)
async def test_a_deletion_means_this_very_pod(answer, expected):
    transport = FakeTransport(handler=lambda sent: answer)
    assert await writer_of(transport).delete_pod("shop", "web-1", "u1") is expected
    (sent,) = transport.sent
    assert (sent.method, sent.path) == ("DELETE", POD)
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u1"},
    }


@pytest.mark.parametrize(
    "found",
    [refused(404, "no", "NotFound"), ok({"metadata": {"uid": "u2"}})],
    ids=["gone", "another of its name"],
)
async def test_a_deletion_with_a_conflict_about_a_pod_that_is_gone(found):
    transport = FakeTransport(
        handler=lambda sent: refused(409) if sent.method == "DELETE" else found
    )
    assert await writer_of(transport).delete_pod("shop", "web-1", "u1") is False
    assert [(sent.method, sent.path) for sent in transport.sent] == [("DELETE", POD), ("GET", POD)]


async def test_a_deletion_with_a_conflict_about_a_pod_that_stays():
    here = ok({"metadata": {"uid": "u1"}})
    transport = FakeTransport(
        handler=lambda sent: refused(409) if sent.method == "DELETE" else here
    )
    with pytest.raises(Conflict):
        await writer_of(transport).delete_pod("shop", "web-1", "u1")


async def test_a_deletion_that_fails():
    transport = FakeTransport(handler=lambda sent: refused(503))
    with pytest.raises(ServerUnavailable):
        await writer_of(transport).delete_pod("a", "b", "u")
    assert len(transport.sent) == WRITE_ATTEMPTS


@lost
async def test_a_deletion_whose_answer_is_lost_is_repeated(trouble):
    transport = FakeTransport()
    transport.answers.extend([trouble, ok()])
    assert await writer_of(transport).delete_pod("shop", "web-1", "u1") is True
    assert [sent.method for sent in transport.sent] == ["DELETE"] * 2


async def test_volumes_and_claims_are_changed_in_the_version_that_was_seen():
    transport = FakeTransport(handler=lambda sent: ok({"metadata": {"resourceVersion": "8"}}))
    writer = writer_of(transport)
    body = await writer.patch_persistent_volume(
        "pv/1", resource_version="7", changes={"spec": {"claimRef": {"name": "c"}}}
    )
    assert body == b'{"metadata": {"resourceVersion": "8"}}'
    await writer.patch_persistent_volume_claim(
        "shop",
        "c",
        resource_version="9",
        changes={"metadata": {"annotations": {"volume.kubernetes.io/selected-node": "n1"}}},
    )
    volume, claim = transport.sent
    assert volume.path == "/api/v1/persistentvolumes/pv%2F1"
    assert volume.body == {
        "spec": {"claimRef": {"name": "c"}},
        "metadata": {"resourceVersion": "7"},
    }
    assert claim.path == "/api/v1/namespaces/shop/persistentvolumeclaims/c"
    assert claim.body["metadata"] == {
        "annotations": {"volume.kubernetes.io/selected-node": "n1"},
        "resourceVersion": "9",
    }
    assert {sent.content_type for sent in transport.sent} == {MERGE_PATCH}


def test_a_patch_with_senseless_metadata():
    with pytest.raises(TypeError):
        object_patch("1", {"metadata": "x"})


def test_a_taken_name_is_a_conflict():
    assert issubclass(AlreadyExists, Conflict)


PAGES = {
    "a page": Response(200, b"<html>Sign in</html>"),
    "nothing": Response(200, b""),
    "a list": Response(200, b"[]"),
}
WRITES = {
    "deletion": lambda writer: writer.delete_pod("shop", "web-1", "u1"),
    "status": lambda writer: writer.patch_pod_status(
        next(iter(shown().values())), nominated_node_name="n1", now=0.0
    ),
    "status of a group": lambda writer: writer.patch_status(
        make_object(PodGroup, {"metadata": {"name": "g", "namespace": "shop", "uid": "u"}}),
        "/apis/scheduling.k8s.io/v1alpha2/podgroups",
        {},
        MERGE_PATCH,
    ),
    "volume": lambda writer: writer.patch_persistent_volume("v", resource_version="1", changes={}),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("page", PAGES.values(), ids=PAGES)
async def test_an_answer_to_a_write_that_no_api_server_gives_is_an_error(write, page):
    transport = FakeTransport(handler=lambda _sent: page)
    with pytest.raises(KubeApiError, match="the answer is not an object"):
        await write(writer_of(transport))
