"""Reading, writing and watching one lease."""

import json
from contextlib import aclosing

import numpy as np
import pytest

from app.kube.errors import AlreadyExists, Conflict, Expired, KubeApiError, NotFound
from app.kube.leaders import Leader, leader_leases
from app.kube.leases import LeaseClient, LeaseRecord, record_from_spec, spec_from_record
from app.kube.transport import Response
from tests.shell.kube.fakes import FakeTransport, bookmark, error_line, line, ok, refused

pytestmark = pytest.mark.looptime

LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
RECORD = LeaseRecord(
    holder="host_1",
    duration_seconds=15,
    acquire_time="2023-11-14T22:13:20.250000Z",
    renew_time="2023-11-14T22:13:22.500000Z",
    transitions=3,
)
SPEC = {
    "holderIdentity": "host_1",
    "leaseDurationSeconds": 15,
    "acquireTime": "2023-11-14T22:13:20.250000Z",
    "renewTime": "2023-11-14T22:13:22.500000Z",
    "leaseTransitions": 3,
}


def manifest(spec=SPEC, name="kube-scheduler", **metadata):
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "uid": "u1", "resourceVersion": "7", **metadata},
        "spec": spec,
    }


def client_of(transport):
    return LeaseClient(transport, namespace="kube-system", name="kube-scheduler")


def test_there_and_back():
    assert spec_from_record(RECORD) == SPEC
    assert record_from_spec(SPEC) == RECORD


def test_coordinated_election_is_kept():
    spec = {**SPEC, "strategy": "OldestEmulationVersion", "preferredHolder": "host_2"}
    assert spec_from_record(record_from_spec(spec)) == spec


def test_an_empty_lease_is_held_by_nobody():
    assert record_from_spec({}) == LeaseRecord()
    assert record_from_spec({"holderIdentity": None, "renewTime": None}) == LeaseRecord()


async def test_reading():
    transport = FakeTransport(handler=lambda sent: ok(manifest()))
    lease = await client_of(transport).get()
    assert lease.record == RECORD
    assert (lease.uid, lease.resource_version) == ("u1", "7")
    assert transport.sent[0].path == f"{LEASES}/kube-scheduler"


async def test_reading_what_is_not_there():
    answer = refused(404, "not found", "NotFound")
    assert await client_of(FakeTransport(handler=lambda sent: answer)).get() is None


async def test_a_404_of_a_load_balancer_says_nothing():
    with pytest.raises(KubeApiError) as caught:
        await client_of(FakeTransport(handler=lambda sent: refused(404))).get()
    assert not isinstance(caught.value, NotFound)


HUGE = 2**31 - 1


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        *(("leaseDurationSeconds", value, value) for value in (1, HUGE)),
        *(("leaseTransitions", value, value) for value in (0, HUGE)),
        *(
            (field, value, 0)
            for field in ("leaseDurationSeconds", "leaseTransitions")
            for value in (-1, -HUGE, HUGE + 1, 10**400, 1.5, 1e300, "15", True, None, [], {})
        ),
        *(
            (field, value, value)
            for field in ("acquireTime", "renewTime", "strategy", "preferredHolder")
            for value in ("0000-01-01T00:00:00.000000Z", "9999-12-31T23:59:59.999999Z", "soon")
        ),
        *(
            (field, value, "")
            for field in ("acquireTime", "renewTime", "strategy", "preferredHolder")
            for value in (None, 5, [], {})
        ),
        ("holderIdentity", "h" * 1_000_000, "h" * 1_000_000),
        ("holderIdentity", "\n\x00\ud7ff", "\n\x00\ud7ff"),
        ("holderIdentity", None, ""),
    ],
)
async def test_extreme_values(field, value, expected):
    """Whoever may write the lease chooses them."""
    body = manifest({**SPEC, field: value})
    lease = await client_of(FakeTransport(handler=lambda sent: ok(body))).get()
    names = {
        "holderIdentity": "holder",
        "leaseDurationSeconds": "duration_seconds",
        "leaseTransitions": "transitions",
        "acquireTime": "acquire_time",
        "renewTime": "renew_time",
        "preferredHolder": "preferred_holder",
    }
    assert getattr(lease.record, names.get(field, field)) == expected
    assert type(getattr(lease.record, names.get(field, field))) is type(expected)


@pytest.mark.parametrize(
    "body",
    [
        manifest({"holderIdentity": 5}),
        manifest([1]),
        [1],
        {},
        {"metadata": {}, "spec": SPEC},
        {"metadata": [], "spec": SPEC},
    ],
)
async def test_what_is_no_lease(body):
    with pytest.raises(KubeApiError, match="kube-scheduler: the "):
        await client_of(FakeTransport(handler=lambda sent: ok(body))).get()


@pytest.mark.parametrize("body", [b"<html>", b"\xff", b'{"a":"\xff"}', b'{"\xff":1}', b""])
async def test_what_is_no_json(body):
    transport = FakeTransport(handler=lambda sent: Response(200, body))
    with pytest.raises(KubeApiError, match="the answer is not a lease"):
        await client_of(transport).get()
    with pytest.raises(KubeApiError, match="unreadable watch line"):
        await follow(FakeTransport([b'{"type":"ADDED","object":' + body + b"}\n"]))


async def test_making_it():
    transport = FakeTransport(handler=lambda sent: ok(manifest(), 201))
    assert (await client_of(transport).create(RECORD)).record == RECORD
    (sent,) = transport.sent
    assert (sent.method, sent.path) == ("POST", LEASES)
    assert sent.body == {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": "kube-scheduler", "namespace": "kube-system"},
        "spec": SPEC,
    }


async def test_updating_replaces_the_spec_and_nothing_else():
    found = manifest({"holderIdentity": "other"}, labels={"a": "b"}, annotations={"c": "d"})
    answers = iter([ok(found), ok(manifest())])
    transport = FakeTransport(handler=lambda sent: next(answers))
    client = client_of(transport)
    lease = await client.get()
    await client.update(lease, RECORD)
    sent = transport.sent[1]
    assert (sent.method, sent.path) == ("PUT", f"{LEASES}/kube-scheduler")
    assert sent.body == {**found, "spec": SPEC}


LEADER = Leader("host_1", "https://10.0.0.1:10259", "PEM", ("default-scheduler",))


def stored(lease):
    """As the server answers it."""
    return {**lease, "metadata": {**lease["metadata"], "resourceVersion": "8"}}


async def test_the_holder_says_who_it_is_in_an_annotation_until_it_releases():
    found = manifest({"holderIdentity": "other"}, labels={"a": "b"}, annotations={"c": "d"})
    transport = FakeTransport(handler=lambda sent: ok(stored(sent.body or found)))
    client = LeaseClient(
        transport, namespace="kube-system", name="kube-scheduler", annotations=LEADER.annotations
    )
    await client.create(RECORD)
    lease = await client.update(await client.get(), RECORD)
    await client.update(lease, LeaseRecord())
    created, _, taken, released = [sent.body for sent in transport.sent]
    assert created["metadata"]["labels"] == {"aiokube-scheduler.io/leader": "true"}
    assert json.loads(created["metadata"]["annotations"]["aiokube-scheduler.io/leader"]) == {
        "identity": "host_1",
        "server": "https://10.0.0.1:10259",
        "certificate": "PEM",
        "schedulerNames": ["default-scheduler"],
    }
    assert taken["metadata"]["labels"] == {"a": "b", "aiokube-scheduler.io/leader": "true"}
    assert taken["metadata"]["annotations"].keys() == {"c", "aiokube-scheduler.io/leader"}
    assert released["metadata"]["annotations"] == {"c": "d"}


async def test_leaders_are_read_from_their_leases():
    said = {"annotations": LEADER.annotations(), "namespace": "kube-system"}
    leases = [
        manifest(**said),
        manifest({"holderIdentity": "kube-scheduler's"}, "overtaken", **said),
        manifest(None, "silent", annotations={"aiokube-scheduler.io/leader": "[]"}),
        manifest(None, "deep", annotations={"aiokube-scheduler.io/leader": '{"a":' * 10_000}),
    ]
    transport = FakeTransport(handler=lambda sent: ok({"items": leases}))
    read = await leader_leases(transport, "kube-system")
    assert transport.sent[0].path == "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases"
    assert transport.sent[0].params == {"labelSelector": "aiokube-scheduler.io/leader=true"}
    assert [(each.name, each.holder, each.leader) for each in read] == [
        ("kube-scheduler", "host_1", LEADER),
        ("overtaken", "kube-scheduler's", None),
        ("silent", "", None),
        ("deep", "", None),
    ]
    assert LEADER.host == "host"


async def test_being_too_late():
    taken = FakeTransport(handler=lambda sent: refused(409, reason="AlreadyExists"))
    with pytest.raises(AlreadyExists):
        await client_of(taken).create(RECORD)
    answers = iter([ok(manifest()), refused(409, reason="Conflict")])
    changed = client_of(FakeTransport(handler=lambda sent: next(answers)))
    lease = await changed.get()
    with pytest.raises(Conflict):
        await changed.update(lease, RECORD)


async def test_watching():
    transport = FakeTransport(
        [
            line("ADDED", manifest()),
            bookmark(8) + line("MODIFIED", manifest({**SPEC, "holderIdentity": ""})),
            line("ADDED", manifest(name="somebody-elses")),
            line("DELETED", manifest()),
        ]
    )
    changes = [change async for change in client_of(transport).changes(np.random.default_rng(1))]
    assert [change and change.holder for change in changes] == ["host_1", "", None]
    assert transport.streamed[0]["fieldSelector"] == "metadata.name=kube-scheduler"


async def follow(transport):
    async with aclosing(client_of(transport).changes(np.random.default_rng(1))) as changes:
        async for _ in changes:
            pass


async def test_a_watch_that_ends_in_an_error():
    with pytest.raises(Expired):
        await follow(FakeTransport([error_line(410)]))
    with pytest.raises(KubeApiError, match="unreadable watch line"):
        await follow(FakeTransport([b"nonsense\n"]))
