"""Requests about claims, as they leave and as their answers are understood."""

import asyncio

import msgspec
import numpy as np
import pytest

from app.kube.errors import (
    SETTLED,
    Conflict,
    ConnectionFailed,
    KubeApiError,
    NotFound,
    NotLeading,
)
from app.kube.resource_claims import ResourceClaimRequests
from app.kube.transport import JSON, MERGE_PATCH, PROTOBUF, STRATEGIC_MERGE_PATCH, Response
from app.kube.writer import KubeWriter
from app.model.devices import ConsumerReference, ResourceClaim
from app.model.pod import make_pod
from app.model.status import ConflictError, SchedulingError
from app.scheduler.effects import ApiClaims
from app.wire.kube import decoder_for
from app.wire.protobuf import with_finalizer
from tests.core.wire.test_protobuf import claim as encoded_claim
from tests.shell.kube.fakes import FakeTransport, ok, refused

pytestmark = pytest.mark.looptime

CLAIMS = "/apis/resource.k8s.io/v1/namespaces/shop/resourceclaims"
STORED = {"metadata": {"name": "c", "namespace": "shop", "uid": "u", "resourceVersion": "7"}}
CLAIM = decoder_for(ResourceClaim).decode(msgspec.json.encode(STORED))


def requests(*answers, leading=True):
    transport = FakeTransport()
    transport.answers.extend(answers)
    return transport, ResourceClaimRequests(
        transport, may_write=lambda: leading, rng=np.random.default_rng(3)
    )


async def test_a_look_up():
    transport, claims = requests(ok(STORED))
    assert await claims.get("shop", "c") == CLAIM
    assert (transport.sent[0].method, transport.sent[0].path) == ("GET", f"{CLAIMS}/c")


async def test_a_look_up_goes_on_until_there_is_an_answer():
    away = ConnectionFailed("connection refused", sent=False)
    transport, claims = requests(away, refused(503), refused(429), ok(STORED))
    assert await claims.get("shop", "c") == CLAIM
    assert len(transport.sent) == 4
    transport, claims = requests(refused(404, "c not found", "NotFound"))
    with pytest.raises(NotFound):
        await claims.get("shop", "c")


@pytest.mark.parametrize(
    "answer",
    [
        refused(401, "Unauthorized", "Unauthorized"),
        refused(404, "the server answered 404 without details"),
        refused(400),
        Response(200, b"<html>Sign in</html>"),
        Response(200, b'{"a":' * 50_000),
        ok({}),
    ],
    ids=["401", "404 of a load balancer", "400", "a page", "nesting", "an empty object"],
)
async def test_what_does_not_answer_a_look_up(answer, looptime, caplog):
    """Devices would be given away twice if an allocation that was written counted as not written."""
    _, claims = requests(*[answer] * 20, ok(STORED))
    assert await claims.get("shop", "c") == CLAIM
    assert looptime > 10
    (warning,) = (r.message for r in caplog.records if r.levelname == "WARNING")
    assert warning.startswith(
        "What became of ResourceClaim shop/c is not known, its devices stay in use: "
    )


async def test_who_may_only_list_looks_up_in_a_list():
    forbidden = refused(403, "cannot get", "Forbidden")
    found = {"kind": "ResourceClaimList", "metadata": {"resourceVersion": "9"}, "items": [STORED]}
    transport, claims = requests(forbidden, ok(found), forbidden, ok({**found, "items": []}))
    assert await claims.get("shop", "c") == CLAIM
    with pytest.raises(NotFound):
        await claims.get("shop", "c")
    assert [(sent.path, sent.params) for sent in transport.sent] == [
        (f"{CLAIMS}/c", {}),
        (CLAIMS, {"fieldSelector": "metadata.name=c"}),
    ] * 2


@pytest.mark.parametrize(
    "listed",
    [refused(403), refused(500), ok({}), ok({"kind": "PodList", "items": []}), Response(200, b"<")],
)
async def test_what_does_not_answer_a_look_up_in_a_list(listed):
    _, claims = requests(refused(403, "cannot get"), listed, ok(STORED))
    assert await claims.get("shop", "c") == CLAIM


LOST = {
    "no answer": ConnectionFailed("no answer in time", sent=True),
    "500": refused(500, "etcdserver: request timed out", "InternalError"),
    "a page": Response(200, b"<html>Sign in</html>"),
    "an empty object": ok({}),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
async def test_a_write_that_may_take_effect_late_is_waited_for(lost, looptime):
    transport, claims = requests(lost)
    with pytest.raises(KubeApiError):
        await claims.patch(CLAIM, {}, status=True)
    transport.handler = lambda sent: ok(STORED)
    assert await claims.get("shop", "c") == CLAIM
    assert looptime == pytest.approx(SETTLED)
    assert await claims.get("shop", "c") == CLAIM
    assert looptime == pytest.approx(SETTLED), "once"


async def test_a_write_that_was_cancelled_may_take_effect_late(looptime):
    transport, claims = requests()
    transport.latency = 30.0
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await claims.patch(CLAIM, {}, status=True)
    transport.latency, changed = (
        0.0,
        {**STORED, "metadata": {**STORED["metadata"], "resourceVersion": "8"}},
    )
    transport.handler = lambda sent: ok(changed if looptime > 40 else STORED)
    assert (await claims.get("shop", "c")).resource_version == "8"
    assert 40 < looptime < 45


@pytest.mark.parametrize(
    "refusal",
    [
        refused(409, "modified", "Conflict"),
        refused(422, "no", "Invalid"),
        refused(403),
        ConnectionFailed("refused", sent=False),
    ],
)
async def test_a_write_that_was_refused_is_not_waited_for(refusal, looptime):
    _, claims = requests(refusal, ok(STORED))
    with pytest.raises(KubeApiError):
        await claims.patch(CLAIM, {}, status=True)
    await claims.get("shop", "c")
    assert looptime == 0


async def test_writes_without_an_answer_are_not_remembered_for_ever():
    _, claims = requests(*[LOST["no answer"]] * 3)
    for number in range(3):
        named = msgspec.structs.replace(CLAIM.metadata, name=f"c{number}")
        with pytest.raises(ConnectionFailed):
            await claims.patch(msgspec.structs.replace(CLAIM, metadata=named), {}, status=True)
        await asyncio.sleep(SETTLED / 2)
    assert len(claims._unanswered) == 2


async def test_a_creation_has_no_status():
    transport, claims = requests(ok(STORED))
    made = msgspec.structs.replace(
        CLAIM, metadata=msgspec.structs.replace(CLAIM.metadata, name="", generate_name="p-")
    )
    assert await claims.create(made) == CLAIM
    (sent,) = transport.sent
    assert (sent.method, sent.path) == ("POST", CLAIMS)
    assert sent.body["kind"] == "ResourceClaim"
    assert sent.body["metadata"]["generateName"] == "p-"
    assert "name" not in sent.body["metadata"]
    assert "status" not in sent.body


async def test_changes_hold_for_one_version():
    transport, claims = requests(ok(STORED), ok(STORED))
    await claims.patch(CLAIM, {"metadata": {"finalizers": ["f"]}}, status=False)
    consumers = [ConsumerReference(resource="pods", name="p", uid="x")]
    await claims.patch(CLAIM, {"status": {"reservedFor": consumers}}, status=True)
    whole, status = transport.sent
    assert (whole.method, whole.path, whole.content_type) == ("PATCH", f"{CLAIMS}/c", MERGE_PATCH)
    assert whole.body == {"metadata": {"finalizers": ["f"], "resourceVersion": "7"}}
    assert status.path == f"{CLAIMS}/c/status"
    assert status.body == {
        "metadata": {"resourceVersion": "7"},
        "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "x"}]},
    }


async def test_a_finalizer_is_added_to_one_version():
    transport, claims = requests(ok(STORED))
    assert await claims.add_finalizer(CLAIM, "f") == CLAIM
    (sent,) = transport.sent
    assert (sent.method, sent.path, sent.content_type) == ("PATCH", f"{CLAIMS}/c", MERGE_PATCH)
    assert sent.body == {"metadata": {"finalizers": ["f"], "resourceVersion": "7"}}


REFUSED = refused(422, "spec: Invalid value: {}: field is immutable", "Invalid")


async def test_a_finalizer_of_a_claim_that_json_does_not_carry():
    stored = Response(200, encoded_claim(version="7", finalizers=["a"]))
    transport, claims = requests(REFUSED, stored, ok(STORED))
    assert await claims.add_finalizer(CLAIM, "f") == CLAIM
    _, read, written = transport.sent
    assert (read.method, read.path, read.accept) == ("GET", f"{CLAIMS}/c", PROTOBUF)
    assert (written.method, written.path) == ("PUT", f"{CLAIMS}/c")
    assert (written.content_type, written.accept) == (PROTOBUF, JSON)
    assert written.body == with_finalizer(stored.body, "f")


@pytest.mark.parametrize(
    ("stored", "error"),
    [
        (Response(200, encoded_claim(version="8")), Conflict),
        (Response(200, b"{}"), KubeApiError),
        (refused(404), KubeApiError),
    ],
)
async def test_a_claim_that_is_another_one_by_then_is_not_written(stored, error):
    transport, claims = requests(REFUSED, stored)
    with pytest.raises(error):
        await claims.add_finalizer(CLAIM, "f")
    assert [sent.method for sent in transport.sent] == ["PATCH", "GET"]


async def test_a_finalizer_that_is_refused_for_another_reason():
    transport, claims = requests(refused(403))
    with pytest.raises(KubeApiError):
        await claims.add_finalizer(CLAIM, "f")
    assert len(transport.sent) == 1


async def test_this_very_claim_is_deleted():
    transport, claims = requests(ok({}))
    await claims.delete(CLAIM)
    (sent,) = transport.sent
    assert (sent.method, sent.path) == ("DELETE", f"{CLAIMS}/c")
    assert sent.body["preconditions"] == {"uid": "u"}


async def test_a_deletion_that_no_api_server_has_answered():
    _, claims = requests(Response(200, b"<html>"))
    with pytest.raises(KubeApiError, match="the answer is not an object"):
        await claims.delete(CLAIM)


@pytest.mark.parametrize("what", ["create", "patch", "add_finalizer", "delete"])
async def test_nothing_leaves_a_process_that_does_not_lead(what):
    transport, claims = requests(leading=False)
    calls = {
        "create": lambda: claims.create(CLAIM),
        "patch": lambda: claims.patch(CLAIM, {}, status=True),
        "add_finalizer": lambda: claims.add_finalizer(CLAIM, "f"),
        "delete": lambda: claims.delete(CLAIM),
    }
    with pytest.raises(NotLeading):
        await calls[what]()
    assert transport.sent == []


@pytest.mark.parametrize("answer", [ok({"metadata": 1}), ok({}), Response(200, b"<html>")])
async def test_an_answer_that_is_no_claim(answer):
    _, claims = requests(answer)
    with pytest.raises(KubeApiError, match="the answer is not a ResourceClaim"):
        await claims.patch(CLAIM, {}, status=True)


async def test_a_claim_that_cannot_be_read():
    _, claims = requests(ok({**STORED, "spec": 1}))
    with pytest.raises(KubeApiError, match="the answer is not a ResourceClaim"):
        await claims.get("shop", "c")


async def test_a_look_up_needs_no_lease():
    _, claims = requests(ok(STORED), leading=False)
    assert await claims.get("shop", "c") == CLAIM


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (refused(409, "the object has been modified", "Conflict"), ConflictError),
        (refused(409, "c already exists", "AlreadyExists"), SchedulingError),
        (refused(422, "too many consumers", "Invalid"), SchedulingError),
    ],
)
async def test_faults_in_the_plugins_words(answer, error):
    transport, claims = requests(answer)
    effects = ApiClaims(claims, KubeWriter(transport, may_write=lambda: True, rng=None))
    with pytest.raises(SchedulingError) as caught:
        await effects.patch(CLAIM, {}, status=True)
    assert type(caught.value) is error
    assert str(caught.value) == str(answer)
    assert isinstance(caught.value.__cause__, KubeApiError)
    assert isinstance(answer, Conflict) == (answer.status == 409)


async def test_a_pod_is_told_of_its_claim():
    transport, claims = requests(ok({}))
    effects = ApiClaims(claims, KubeWriter(transport, may_write=lambda: True, rng=None))
    status = {"resourceClaimName": "c", "requestMappings": []}
    await effects.tell_pod(make_pod(namespace="shop", name="p", uid="x"), status)
    (sent,) = transport.sent
    assert sent.path == "/api/v1/namespaces/shop/pods/p/status"
    assert sent.content_type == STRATEGIC_MERGE_PATCH
    assert sent.body == {
        "metadata": {"uid": "x"},
        "status": {"extendedResourceClaimStatus": status},
    }
