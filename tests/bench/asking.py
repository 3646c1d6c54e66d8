"""``python -m tests.bench.asking``: asks a scheduler so many questions a second where pods would go (docs/whatif.md).

Each is sent at its time, whether those before it were answered or not. When it is asked to end, it prints how many were
sent, how many of them have got which status, and how long the answers took.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import ssl
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

import aiohttp

from app.runtime.clock import SystemClock
from app.tools.subprocesses import interruptible
from tests.bench.results import quantile

Manifest = dict[str, Any]

_OK: Final = 200
#: Questions differ by their requests: so many are not alike.
_DIFFERENT: Final = 97
#: Seconds until a scheduler that does not listen yet is tried again.
_RETRY_SECONDS: Final = 0.05
_now: Final = SystemClock().monotonic


@dataclasses.dataclass(slots=True)
class Asked:
    """What became of the questions."""

    sent: int = 0
    #: Of the answers: seconds of each.
    latencies: list[float] = dataclasses.field(default_factory=list)
    #: How often there was no answer, or not a whole one.
    others: Counter[str] = dataclasses.field(default_factory=Counter)

    def figures(self) -> dict[str, Any]:
        """The fields of a result (tests.bench.results) that are about questions."""
        others = [f"{count} {how}" for how, count in sorted(self.others.items())]
        return {
            "questions": self.sent,
            "answered": len(self.latencies),
            "refused": ", ".join(others),
            "answer_p50_ms": quantile(self.latencies, 0.5),
            "answer_p99_ms": quantile(self.latencies, 0.99),
        }


def deployment(name: str, cpu: str, replicas: int) -> Manifest:
    """A Deployment without anything particular."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    template = {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": template,
        },
    }


async def ask(url: str, rate: float, pods: int, asked: Asked) -> None:
    """Asks until it is cancelled."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        await _until_it_listens(session, url)
        began = _now()
        while True:
            await asyncio.sleep(began + asked.sent / rate - _now())
            cpu = f"{100 + asked.sent % _DIFFERENT}m"
            question = {"question": "fits", "objects": [deployment("asked", cpu, pods)]}
            asked.sent += 1
            group.create_task(_one(session, url, question, asked))


async def _until_it_listens(session: aiohttp.ClientSession, url: str) -> None:
    while True:
        try:
            async with session.get(f"{url}/livez", ssl=_TLS):
                return
        except aiohttp.ClientConnectionError:
            await asyncio.sleep(_RETRY_SECONDS)


async def _one(session: aiohttp.ClientSession, url: str, question: Manifest, asked: Asked) -> None:
    began = _now()
    with contextlib.suppress(aiohttp.ClientError):  # the scheduler has ended
        async with session.post(f"{url}/whatif", json=question, ssl=_TLS) as response:
            answer = await response.json()
            if response.status != _OK:
                asked.others[f"with {response.status}"] += 1
            elif answer["truncated"]:
                asked.others["cut short"] += 1
            else:
                asked.latencies.append(_now() - began)


def _any_certificate() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


_TLS: Final = _any_certificate()


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.asking", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the scheduler, on 127.0.0.1")
    parser.add_argument("--rate", type=float, default=10.0, help="questions a second")
    parser.add_argument("--pods", type=int, default=100, help="pods of a question")
    given = parser.parse_args(arguments)
    asked = Asked()
    url = f"https://127.0.0.1:{given.port}"
    asyncio.run(interruptible(ask(url, given.rate, given.pods, asked)))
    print(json.dumps(asked.figures()))


if __name__ == "__main__":
    main()
