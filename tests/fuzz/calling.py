"""Requests to the endpoints: right ones, wrong ones and what is no HTTP, while odd objects are in the cluster to be
shown.
"""

import asyncio
import contextlib
import logging
import re
from collections import Counter
from random import Random

from app.runtime import logs
from tests.fuzz.driver import Figures, Slow
from tests.fuzz.histories import Guests
from tests.fuzz.shapes import encode, junk
from tests.fuzz.world import CONFIG, Cost, Violation, World, running
from tests.shell.serving.test_requests import REQUEUE, serving_everybody

#: Seconds without a byte after which an answer is taken for complete.
_SILENCE = 0.1

_METHODS = (
    "GET",
    "GET",
    "GET",
    "GET",
    "PUT",
    "POST",
    "HEAD",
    "OPTIONS",
    "DELETE",
    "PATCH",
    "CONNECT",
    "get",
    "BREW",
    "",
    "G\0T",
    "GET " * 20,
)
_PARTS = (
    "/",
    "//",
    "/..",
    "/%2e%2e",
    "/%00",
    "/%ff",
    "/%",
    "/%zz",
    "/\u00fc",
    "/x" * 50,
    "/" + "x" * 9000,
    "/default",
    "/pod-0",
    "/normal",
    "?",
    "?verbose",
    "#",
    ";x=1",
    " ",
    "/*",
    "/debug",
)
_QUERIES = ("limit", "exclude", "verbose", "name[]", "")
_VALUES = (
    "",
    "1",
    "-1",
    "0",
    "9" * 30,
    "9" * 5000,
    "1e9",
    "\u0663",
    "abc",
    "%00",
    "%ff",
    "x," * 3000,
    "leaderElection",
    "true",
)
_HEADERS = (
    "Authorization: Bearer x", "Authorization: Bearer " + "x" * 50_000, "Authorization: Bearer \u00fc", "Authorization: Basic \xff", "Authorization:", "Accept: application/json",
    "Accept: " + "a/b;q=0.1," * 1000, "Accept: application/openmetrics-text;version=99", "Accept-Encoding: gzip;q=x,\xff", "Accept-Encoding: gzip", "Expect: 100-continue", "Upgrade: websocket",
    "Connection: Upgrade", "Content-Type: application/json; charset=utf-7", "Content-Type: \0", "Content-Encoding: gzip", "Host: a", "X: " + "y" * 100_000, "no colon", ": x", "X:\r\n y", "Range: bytes=9-1",
    "Content-Type: multipart/form-data; boundary=", "Cookie: " + "a=b;" * 1000, "Transfer-Encoding: gzip", "X-Forwarded-For: \u202e",
)  # fmt: skip
_RAW = (
    b"GET\r\n\r\n", b"\r\n" * 100, b"GET / HTTP/9.9\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01\xff\xff" + b"\0" * 500, b"\x00\xff" * 500, b"", b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: 1\r\n" * 20_000 + b"\r\n",
    b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 50, b"POST /configz HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcde", b"GET /healthz", b"SSH-2.0-x\r\n",
    b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"POST /debug/flags/v HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999\r\n\r\n" + b"z" * 200_000,
)  # fmt: skip


class Requests:
    """Makes requests to these paths."""

    def __init__(self, random: Random, paths: list[str]) -> None:
        self._random = random
        self._paths = paths

    def next(self) -> bytes:
        """The bytes of a request, or of several."""
        random = self._random
        if random.random() < 0.08:
            raw = random.choice(_RAW)
            return raw if random.random() < 0.7 else raw[: random.randrange(len(raw) + 1)]
        if random.random() < 0.5:
            path = self._path(parts=0)
            method = (
                "PUT" if path.startswith("/debug/flags") else "POST" if "requeue" in path else "GET"
            )
            head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close"
            return head.encode() + self._with_body(self._body() if method != "GET" else b"")
        body = self._body() if random.random() < 0.4 else b""
        lines = [
            f"{random.choice(_METHODS)} {self._path()} HTTP/1.{random.choice('1110')}",
            "Host: x",
        ]
        lines += random.choices(_HEADERS, k=random.choice([0, 0, 1, 2, 3]))
        if random.random() < 0.9:
            lines.append("Connection: close")
        head = "\r\n".join(lines).encode("utf-8", "surrogateescape")
        return head + self._with_body(body)

    def _with_body(self, body: bytes) -> bytes:
        random = self._random
        match random.randrange(8):
            case 0:
                half = len(body) // 2
                chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (
                    half,
                    body[:half],
                    len(body) - half,
                    body[half:],
                )
                return b"\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
            case 1:
                length = random.choice(
                    [b"-1", b"ten", b"9" * 30, b"%d" % (len(body) + 5), b"0", b""]
                )
                return b"\r\nContent-Length: %b\r\n\r\n%b" % (length, body)
        return b"\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)

    def _path(self, parts: int = 2) -> str:
        random = self._random
        path = random.choice(self._paths)
        path = path.replace(
            "{namespace}", random.choice(["default", "normal", "team-a", "%00", "x" * 300])
        ).replace("{name}", random.choice(["pod-0", "normal-1", "..", "%ff"]))
        for _ in range(min(parts, random.choice([0, 0, 0, 1, 2]))):
            path += random.choice(_PARTS)
        if random.random() < 0.4:
            path += "?" + "&".join(
                f"{random.choice(_QUERIES)}={random.choice(_VALUES)}"
                for _ in range(random.choice([1, 1, 2, 50]))
            )
        return path

    def _body(self) -> bytes:
        random = self._random
        choice = random.random()
        if choice < 0.3:
            return random.choice(
                [
                    b"0",
                    b"4",
                    b"-1",
                    b"9" * 5000,
                    b"\xff",
                    b" 2 ",
                    b"1e3",
                    b"",
                    b"0" * 70_000,
                    "\u0663".encode(),
                ]
            )
        if choice < 0.7:
            fields = {"extender": junk(random), "pods": junk(random), "resource": junk(random)}
            chosen = {name: value for name, value in fields.items() if random.random() < 0.5}
            return encode({"pods": [{"namespace": "default", "name": "pod-0"}]} | chosen)[:100_000]
        return encode(junk(random))[:100_000]


async def send(port: int, request: bytes) -> bytes:
    """The answer to these bytes, or what there is of it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    with contextlib.suppress(OSError):
        writer.write(request)
        await writer.drain()
    with contextlib.suppress(OSError, TimeoutError):
        while chunk := await asyncio.wait_for(reader.read(1 << 20), _SILENCE):
            answer += chunk
    writer.transport.abort()
    return answer


async def _call(
    world: World, random: Random, number: int, figures: Figures, budget: float
) -> Counter[bytes]:
    for event in Guests(random).events(60):
        world.server.happens(event)
        await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    endpoints, statuses = world.endpoints(), Counter[bytes]()
    async with serving_everybody(endpoints) as listening:
        requests = Requests(random, [route.path for route in endpoints.routes])
        for _ in range(number):
            request = requests.next()
            world.listener.records.clear()
            world.meter.longest = 0.0
            answer = await send(listening.port, request)
            cost = Cost(world.meter.longest, f"request {request[:80]!r}")
            figures.cost(cost, None)
            figures.events += 1
            status = answer[9:12] if answer.startswith(b"HTTP/1.") else answer[:3]
            statuses[status] += 1
            if cost.seconds > budget:
                raise Slow(f"{cost.seconds * 1000:.0f} ms of CPU for {request[:1000]!r}")
            wrong = [
                record.getMessage() for record in world.listener.records if _of_endpoints(record)
            ]
            if wrong or (
                status.startswith(b"5")
                and status not in {b"501", b"505"}
                and not _unhealthy(answer)
            ):
                raise Violation(
                    f"{request[:1500]!r} is answered by {answer[:300]!r}; logged: {wrong}; {world.listener.tracebacks()}"
                )
        if b" 200 " not in await send(
            listening.port, b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        ):
            raise Violation("not alive after all requests")
    return statuses


def _of_endpoints(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR and record.name.startswith(("app.serving", "aiohttp"))


def _unhealthy(answer: bytes) -> bool:
    """Whether this is the answer of a check that fails."""
    return (
        re.search(rb"(healthz|readyz|livez) check failed|failed: reason withheld", answer)
        is not None
    )


def run(seed: int, number: int, figures: Figures, *, budget: float = 1.0) -> Counter[bytes]:
    """So many requests; the statuses they got. Raises Violation."""

    async def main() -> Counter[bytes]:
        async with running(config=CONFIG + REQUEUE) as world:
            return await _call(world, Random(seed), number, figures, budget)

    try:
        return asyncio.run(main())
    finally:
        logs.set_verbosity(0)
