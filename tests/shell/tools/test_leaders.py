"""Leaders are found by their leases, and reached directly or through kubectl's port-forward."""

import asyncio
import os
import socket
import stat
import sys

import msgspec
import pytest

from app.kube.leaders import Leader, LeaderLease
from app.tools import leaders as module
from app.tools.leaders import Kubectl, NotReached, find_leaders, reached, scheduler_name_of
from app.tools.subprocesses import reserved_port
from tests.shell.kube.fakes import FakeTransport, ok, refused

KUBECONFIG = Kubectl("config", "there")
HERE = socket.gethostname()
KUBECTL = """#!{python} -u
import json, os, sys, time
json.dump([sys.argv[1:], os.environ["KUBECONFIG"]], open({seen!r}, "w"))
{does}
"""
FORWARDS = "print('Forwarding from 127.0.0.1:4711 -> 10259'); time.sleep(60)"


def leader(server, host="sched-0", names=("default-scheduler",)):
    return Leader(f"{host}_1234", server, "", names)


STARTING = msgspec.structs.replace(leader(""), starting=True)


def lease(leader, name="kube-scheduler", holder=""):
    return LeaderLease("kube-system", name, holder or (leader.identity if leader else ""), leader)


def pod(name, namespace="kube-system", **spec):
    return {"metadata": {"name": name, "namespace": namespace}, "spec": spec}


def api(by_name=(), on_node=()):
    """An API server with these pods."""

    def answer(sent):
        selected = sent.params["fieldSelector"].startswith("metadata.name=")
        return ok({"items": list(by_name if selected else on_node)})

    return FakeTransport(handler=answer)


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """Makes the ``kubectl`` on the PATH do something; returns the file with what it was told."""

    def install(does):
        seen = tmp_path / "seen"
        script = tmp_path / "kubectl"
        script.write_text(KUBECTL.format(python=sys.executable, seen=str(seen), does=does))
        script.chmod(script.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        return seen

    return install


async def url(lease, transport=None):
    async with reached(lease, transport or api(), KUBECONFIG) as server:
        return server


async def problem(*arguments):
    with pytest.raises(NotReached) as caught:
        await url(*arguments)
    return str(caught.value)


async def test_an_address_that_answers_is_taken():
    server = await asyncio.start_server(lambda _r, w: w.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server:
        here = f"https://127.0.0.1:{port}"
        assert await url(lease(leader(here, HERE))) == here


@pytest.mark.parametrize("pods", [[pod("sched-0")], [pod("sched-0", "else"), pod("sched-0")]])
async def test_else_kubectl_forwards_to_the_pod_with_the_leader_s_name(kubectl, pods):
    seen = kubectl(FORWARDS)
    with reserved_port() as port:
        server = f"https://127.0.0.1:{port}"
        assert await url(lease(leader(server)), api(pods)) == "https://127.0.0.1:4711"
    words = f'"--namespace=kube-system", "pod/sched-0", ":{port}"], "config"]'
    start = '[["--context", "there", "port-forward", "--address=127.0.0.1", '
    assert seen.read_text() == start + words


async def test_a_static_pod_has_the_name_of_its_node(kubectl):
    seen = kubectl(FORWARDS)
    image = [{"image": "registry.example/aiokube-scheduler:1"}]
    on_node = [
        pod("kube-proxy-n1", hostNetwork=True, containers=[{"image": "proxy"}]),
        pod("aiokube-scheduler-x", containers=image),
        pod("kube-scheduler-n1", hostNetwork=True, containers=image),
    ]
    transport = api(on_node=on_node)
    assert await url(lease(leader("https://127.0.0.1:10259", "n1")), transport)
    assert '"pod/kube-scheduler-n1"' in seen.read_text()
    assert [sent.params for sent in transport.sent] == [
        {"fieldSelector": "metadata.name=n1"},
        {"fieldSelector": "spec.nodeName=n1"},
    ]


async def test_what_was_tried_is_told(kubectl, monkeypatch):
    kubectl("sys.exit('error: unable to forward port because pod is not running')")
    monkeypatch.setattr(module, "CONNECT_SECONDS", 0.05)
    said = await problem(lease(leader("https://127.0.0.1:10259")), api([pod("sched-0")]))
    first, second, third = said.split("\n", 2)
    assert first == "lease kube-system/kube-scheduler is held by sched-0_1234"
    expected = f"https://127.0.0.1:10259: an address of sched-0, and this machine is {HERE}"
    assert second == expected
    assert "kubectl --context there port-forward" in third
    assert "pod is not running" in third


async def test_pods_that_cannot_be_told_apart_or_are_not_there():
    where = lease(leader("https://127.0.0.1:10259"))
    assert "no pods could be the one on host sched-0" in await problem(where, api())
    twins = api([pod("sched-0", "a"), pod("sched-0", "b")])
    assert "2 pods could be the one on host sched-0" in await problem(where, twins)
    forbidden = FakeTransport(handler=lambda sent: refused(403))
    assert "its pod cannot be looked for" in await problem(where, forbidden)


async def test_without_kubectl(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    said = await problem(lease(leader("https://127.0.0.1:10259")), api([pod("sched-0")]))
    assert "no kubectl on the PATH" in said


@pytest.mark.parametrize(
    ("held", "said"),
    [
        (lease(None, holder="n1_5"), "is held by n1_5, which is no aiokube-scheduler"),
        (lease(None), "is held by no process"),
        (lease(leader("")), "is held by sched-0_1234, which serves no endpoints"),
        (lease(STARTING), "is held by sched-0_1234, which has not named its endpoints yet"),
    ],
)
async def test_holders_that_cannot_be_asked(held, said):
    assert said in await problem(held)


# ---------------------------------------------------------------- which leader


def leases(*leaders):
    items = [
        {
            "metadata": {"name": f"l{i}", "namespace": "ns", "annotations": each.annotations()},
            "spec": {"holderIdentity": each.identity},
        }
        for i, each in enumerate(leaders)
    ]
    return FakeTransport(handler=lambda sent: ok({"items": items}))


async def test_the_leader_with_the_pod_s_profile_is_taken_or_all():
    two = [leader("https://a"), leader("https://b", names=("second", "third"))]
    for name, servers in {"third": ["https://b"], "none": ["https://a", "https://b"]}.items():
        found = await find_leaders(leases(*two), name, "ns")
        assert [each.leader.server for each in found] == servers


@pytest.mark.looptime
async def test_a_leader_that_has_started_only_now_is_waited_for(looptime):
    stages = iter([STARTING, STARTING, leader("https://a")])
    transport = FakeTransport(handler=lambda sent: leases(next(stages)).handler(sent))
    [found] = await find_leaders(transport, None, "ns")
    assert found.leader == leader("https://a")
    assert looptime == pytest.approx(2 * module.STARTING_PAUSE)


@pytest.mark.looptime
async def test_it_is_not_waited_for_beside_another(looptime):
    found = await find_leaders(leases(STARTING, leader("https://a")), None, "ns")
    assert (len(found), looptime) == (2, 0.0)


@pytest.mark.looptime
async def test_it_is_not_waited_for_without_end(looptime):
    [found] = await find_leaders(leases(STARTING), None, "ns")
    assert found.leader == STARTING
    assert looptime == pytest.approx(module.STARTING_SECONDS, abs=module.STARTING_PAUSE)


async def test_no_leader_at_all():
    with pytest.raises(NotReached, match=r"no lease in namespace ns \(--lease-namespace\)"):
        await find_leaders(leases(), None, "ns")
    with pytest.raises(NotReached, match="cannot be listed"):
        await find_leaders(FakeTransport(handler=lambda sent: refused(403)), None, "ns")


@pytest.mark.parametrize("server", ["https://[::1", "https://a:b", "ftp://a", "https://a\nb"])
async def test_an_address_that_is_none(server):
    said = await problem(lease(leader(server)))
    assert said.startswith(
        "lease kube-system/kube-scheduler has no address of endpoints: host must"
    )


async def test_the_pod_tells_its_scheduler():
    transport = FakeTransport(handler=lambda sent: ok(pod("p", schedulerName="second")))
    assert await scheduler_name_of(transport, "shop", "p") == "second"
    assert transport.sent[0].path == "/api/v1/namespaces/shop/pods/p"
    gone = FakeTransport(handler=lambda sent: refused(404))
    assert await scheduler_name_of(gone, "shop", "p") is None
