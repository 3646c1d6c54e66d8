"""Proxies for tests."""

import asyncio
import contextlib


class Tunnel:
    """A proxy that answers CONNECT, and passes bytes on when it may."""

    def __init__(self, status="200 Connection established", on_connect=lambda: None, tls=None):
        """``on_connect`` is called before each answer; ``tls``: the proxy's own context."""
        self.tls = tls
        self.status, self.on_connect, self.heads, self.tasks = status, on_connect, [], []

    @property
    def lines(self):
        """The first lines of the requests."""
        return [head.splitlines()[0] for head in self.heads]

    async def __aenter__(self):
        self.server = await asyncio.start_server(self._accept, "127.0.0.1", 0, ssl=self.tls)
        self.port = self.server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self.server.close()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.server.wait_closed()

    async def _accept(self, reader, writer):
        self.tasks.append(asyncio.current_task())
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        self.on_connect()
        writer.write(f"HTTP/1.1 {self.status}\r\n\r\n".encode())
        if self.status.startswith("200"):
            host, port = head.split()[1].rsplit(":", 1)
            there, back = await asyncio.open_connection(host, int(port))
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.gather(_pass_on(reader, back), _pass_on(there, writer))
            back.close()
        writer.close()


async def _pass_on(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
