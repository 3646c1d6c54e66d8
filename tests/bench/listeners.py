"""``python -m tests.bench.listeners``: follows the feed of a scheduler as often as many open pages would.

It reads the bytes and looks at nothing but the number of the last event, so that it takes little from the scheduler's
processor. It prints ``all listeners hear`` when each has had an event, and how much it was sent when it is asked to
end.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import json
import re
import ssl
from collections.abc import Sequence
from typing import Final

from app.tools.subprocesses import interruptible

#: Seconds until a connection that was refused or has ended is made again.
RETRY_SECONDS: Final = 0.1
#: What it prints when each listener has had an event.
ALL_HEAR: Final = "all listeners hear"
_NUMBER: Final = re.compile(rb"\nid: ([0-9-]+)\n")
_LARGEST_EVENT: Final = 1 << 26


@dataclasses.dataclass(slots=True)
class Received:
    """What all listeners together were sent: events, and bytes."""

    events: int = 0
    size: int = 0


class Listener:
    """One page: asks for the feed, and again with the number of the last event whenever an answer ends."""

    def __init__(self, host: str, port: int) -> None:
        self._host: Final = host
        self._port: Final = port
        self._tls: Final = ssl.create_default_context()
        self._tls.check_hostname = False
        self._tls.verify_mode = ssl.CERT_NONE
        self._seen = b""
        self.events = 0
        self.size = 0
        self.hears: Final = asyncio.Event()

    async def follow(self) -> None:
        """Listens until it is cancelled."""
        while True:
            with contextlib.suppress(OSError):
                await self._listen()
            await asyncio.sleep(RETRY_SECONDS)

    async def _listen(self) -> None:
        reader, writer = await asyncio.open_connection(
            self._host, self._port, ssl=self._tls, limit=_LARGEST_EVENT
        )
        try:
            last = b"Last-Event-ID: %b\r\n" % self._seen if self._seen else b""
            writer.write(b"GET /debug/feed HTTP/1.1\r\nHost: scheduler\r\n%b\r\n" % last)
            while True:
                event = await reader.readuntil(b"\n\n")
                self.size += len(event)
                if number := _NUMBER.search(event):
                    self.events += 1
                    self._seen = number[1]
                    self.hears.set()
        except asyncio.IncompleteReadError:
            pass  # the answer has ended
        finally:
            writer.close()


async def follow(host: str, port: int, count: int) -> Received:
    """What so many listeners were sent until SIGTERM."""
    listeners = [Listener(host, port) for _ in range(count)]
    await interruptible(_all(listeners))
    return Received(sum(each.events for each in listeners), sum(each.size for each in listeners))


async def _all(listeners: Sequence[Listener]) -> None:
    await asyncio.gather(_say_when_all_hear(listeners), *(each.follow() for each in listeners))


async def _say_when_all_hear(listeners: Sequence[Listener]) -> None:
    for each in listeners:
        await each.hears.wait()
    print(ALL_HEAR, flush=True)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.listeners", description=__doc__)
    parser.add_argument("--port", type=int, required=True, help="of the scheduler, on 127.0.0.1")
    parser.add_argument("--count", type=int, default=1)
    arguments = parser.parse_args()
    received = asyncio.run(follow("127.0.0.1", arguments.port, arguments.count))
    print(json.dumps(dataclasses.asdict(received)))


if __name__ == "__main__":
    main()
