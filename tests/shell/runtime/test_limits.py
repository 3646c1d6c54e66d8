"""What the system allows: control groups of both versions, ulimit, descriptors."""

import asyncio
import os
import resource
from types import SimpleNamespace

import pytest

from app.runtime import limits
from app.runtime.limits import memory_limit, take_limits
from app.serving.options import ConnectionLimits

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        pytest.param({}, MACHINE, id="nothing to read"),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "268435456\n"},
            268435456,
            id="version 2 in a container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "0::/kubepods/pod1/main\n",
                "sys/fs/cgroup/memory.max": "max\n",
                "sys/fs/cgroup/kubepods/pod1/memory.max": "134217728\n",
                "sys/fs/cgroup/kubepods/pod1/main/memory.max": "268435456\n",
            },
            134217728,
            id="the group above has less",
        ),
        pytest.param(
            {"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "max\n"},
            MACHINE,
            id="no limit",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "5:cpu:/x\n4:memory:/docker/abc\n0::/\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "536870912\n",
            },
            536870912,
            id="version 1 in a container",
        ),
        pytest.param(
            {
                "proc/self/cgroup": "4:memory:/docker/abc\n",
                "sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes": "536870912\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            536870912,
            id="version 1",
        ),
        pytest.param(
            {"proc/self/cgroup": "oops\n", "sys/fs/cgroup/memory.max": "lots\n"},
            MACHINE,
            id="nonsense",
        ),
    ],
)
def test_memory(tmp_path, monkeypatch, files, limit):
    unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: unlimited)
    write(tmp_path, files)
    assert memory_limit(tmp_path) == limit


def test_memory_that_ulimit_leaves(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (400 << 20, resource.RLIM_INFINITY))
    assert memory_limit(tmp_path) == 400 << 20


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (1024, 4096, 4096),
        (1024, resource.RLIM_INFINITY, 65_536),
        (1024, 1_073_741_816, 65_536),
        (24, 24, 24),
        (100_000, 200_000, 100_000),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 65_536),
    ],
)
def test_descriptors_are_raised_to_what_may_be_had(monkeypatch, soft, hard, raised):
    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _which, limit: given.append(limit))
    assert limits._raised_descriptors() == raised
    assert given == ([(raised, hard)] if raised > soft > 0 else [])


def test_descriptors_that_cannot_be_raised(monkeypatch):
    def refuse(_which, _limit):
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _which: (64, 4096))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    assert limits._raised_descriptors() == 64


def test_those_of_this_process():
    taken = take_limits()
    assert 0 < taken.memory <= MACHINE
    assert taken.descriptors > 0


def test_connections_to_the_endpoints_follow_from_the_descriptors():
    assert ConnectionLimits().within(1024) == ConnectionLimits(128, 32)


@pytest.mark.looptime
@pytest.mark.parametrize("library", ["glibc", "one without malloc_trim"])
async def test_free_memory_is_returned_again_and_again(monkeypatch, library):
    trims = []
    functions = {"malloc_trim": trims.append} if library == "glibc" else {}
    monkeypatch.setattr(limits.ctypes, "CDLL", lambda _name: SimpleNamespace(**functions))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(40):
            await limits.return_free_memory()
    assert trims == ([0, 0] if functions else [])


@pytest.mark.looptime
async def test_free_memory_is_returned_the_less_often_the_more_it_takes(monkeypatch):
    spent, trims = [0.0], []

    def trim(_pad):
        spent[0] += 0.02
        trims.append(asyncio.get_running_loop().time())

    monkeypatch.setattr(limits.ctypes, "CDLL", lambda _name: SimpleNamespace(malloc_trim=trim))
    monkeypatch.setattr(limits, "thread_seconds", lambda: spent[0])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await limits.return_free_memory()
    assert trims == pytest.approx([15.0, 35.0, 55.0])


@pytest.mark.looptime
async def test_free_memory_is_returned_to_this_system():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(16):
            await limits.return_free_memory()
