"""Pods that a kubelet rejected, as the watch and a read of each show them."""

import asyncio
import json

import pytest

from app.framework.testing import make_pod
from app.kube.errors import NotFound
from app.kube.transport import Response
from app.model.pod import Pod
from app.scheduler.kubelet_rejections import MAX_REASONS, MAX_WAITING, PAUSE, KubeletRejections
from tests.shell.kube.fakes import FakeTransport
from tests.shell.scheduler.world import running

pytestmark = pytest.mark.looptime


def failed(pod, reason, message="", phase="Failed", uid=None):
    status = {"phase": phase, "reason": reason, "message": message}
    return json.dumps({"metadata": {"uid": uid or pod.uid}, "status": status}).encode()


async def counted(answers, *, leads=True, seconds=3600):
    """By reason, after pods with these answers to a read of them have gone; and the transport."""
    pods = [make_pod(f"p{number}").on("n1") for number in range(len(answers))]
    by_path = {
        f"/api/v1/namespaces/default/pods/{pod.name}": answer(pod)
        for pod, answer in zip(pods, answers, strict=True)
    }

    def handler(sent):
        found = by_path[sent.path]
        return found if isinstance(found, Exception) else Response(200, found)

    transport = FakeTransport(handler=handler)
    async with asyncio.TaskGroup() as group:
        rejections = KubeletRejections(
            transport, lambda work, name: group.create_task(work, name=name), leads=lambda: leads
        )
        for pod in pods:
            rejections.gone(pod)
        await asyncio.sleep(seconds)
    return rejections, transport


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (lambda p: failed(p, "OutOfcpu"), {"OutOfcpu": 1}),
        (lambda p: failed(p, "OutOfnvidia.com/gpu"), {"OutOfnvidia.com/gpu": 1}),
        (lambda p: failed(p, "UnexpectedAdmissionError"), {"UnexpectedAdmissionError": 1}),
        (lambda p: failed(p, "New", "Pod was rejected: for a new reason"), {"New": 1}),
        (lambda p: failed(p, "", "Pod was rejected"), {"other": 1}),
        (lambda p: failed(p, "DeadlineExceeded", "Pod was active too long"), {}),
        (lambda p: failed(p, "OutOfcpu", phase="Running"), {}),
        (lambda p: failed(p, "OutOfcpu", uid="another pod of this name"), {}),
        (lambda _: NotFound("gone", status=404), {}),
        (lambda _: b"not JSON", {}),
        (lambda _: b'{"status": {"reason": 5}}', {}),
    ],
)
async def test_what_counts(answer, found):
    rejections, _ = await counted([answer])
    assert rejections.by_reason == found
    assert len(rejections.examples) == sum(found.values())


async def test_reasons_are_bounded():
    number = MAX_REASONS + 20
    rejections, _ = await counted(
        [lambda p, n=n: failed(p, f"OutOf{n}") for n in range(number)], seconds=60
    )
    assert len(rejections.by_reason) == MAX_REASONS + 1
    assert rejections.by_reason["other"] == 20


async def test_a_standby_reads_nothing():
    _, transport = await counted([lambda p: failed(p, "OutOfcpu")], leads=False)
    assert transport.sent == []


async def test_what_waits_is_bounded_and_read_slowly():
    answers = [lambda p: failed(p, "OutOfcpu")] * (MAX_WAITING + 50)
    now = asyncio.get_running_loop().time
    started = now()
    rejections, transport = await counted(answers, seconds=0)
    assert len(transport.sent) == MAX_WAITING
    assert now() - started >= (MAX_WAITING - 1) * PAUSE
    assert rejections.by_reason == {"OutOfcpu": MAX_WAITING}


async def test_the_watch_shows_a_pod_that_has_failed_as_deleted():
    pod = make_pod("p").on("n1")
    transport = FakeTransport(handler=lambda _sent: Response(200, failed(pod, "OutOfmemory")))
    async with running("n1", transport=transport) as world:
        watch = world.scheduler._handler(Pod)
        watch(None, pod)
        watch(pod, None)
        await asyncio.sleep(1)
        assert world.scheduler.kubelet_rejections.by_reason == {"OutOfmemory": 1}
