"""Opening connections: names, addresses, tunnels. TLS is tested with those who exchange."""

import asyncio
import contextlib
import socket
import ssl

import pytest
from yarl import URL

from app.http import dial
from app.http.body import read_whole
from app.http.dial import Dialer
from app.http.errors import ConnectError, HTTPError, ServerDisconnectedError, UnknownHostError
from app.http.proxy import Proxy
from app.http.request import Route
from app.http.tls import client_context
from tests.shell.extender.servers import Authority, Server, polite, server_context
from tests.shell.http.proxies import Tunnel

HOST = "server.test"


@contextlib.asynccontextmanager
async def dialing():
    dialer = Dialer()
    try:
        yield dialer
    finally:
        dialer.close()


def endpoint(url, *, tls=True, proxy=None, name=None):
    return Route(url, (), tls=tls, server_hostname=name, proxy=proxy).endpoint


@pytest.fixture
def lookups(monkeypatch):
    """What was looked up; a name has the loopback addresses 127.0.0.2 and 127.0.0.1, in this order."""
    seen = []

    async def look_up(host, port, **_options):
        seen.append(host)
        await asyncio.sleep(0)
        if host != HOST:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        where = [(address, port) for address in ("127.0.0.2", "127.0.0.1")]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", each) for each in where]

    @contextlib.contextmanager
    def patched():
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
        yield seen

    return patched


async def test_the_next_address_is_tried_and_those_who_dial_share_a_lookup(lookups):
    async with Server(polite) as server, dialing() as dialer:
        with lookups() as seen:
            where = endpoint(f"http://{HOST}:{URL(server.url).port}")
            made = await asyncio.gather(*(dialer.dial(where) for _ in range(3)))
            made.append(await dialer.dial(where))
        assert seen == [HOST]
        for connection in made:
            connection.close()


async def test_a_lookup_that_fails_is_not_remembered(lookups):
    async with dialing() as dialer:
        with lookups() as seen:
            for _ in range(2):
                with pytest.raises(UnknownHostError):
                    await dialer.dial(endpoint("http://nowhere.test"))
        assert seen == ["nowhere.test"] * 2


async def test_names_that_nobody_dials_any_more_are_forgotten(lookups, monkeypatch):
    monkeypatch.setattr(dial, "_NAMES_KEPT", -1.0)
    async with dialing() as dialer:
        with lookups():
            for number in range(3):
                with pytest.raises(UnknownHostError):
                    await dialer.dial(endpoint(f"http://nowhere-{number}.test"))
        assert len(dialer._names) == 1


async def test_a_name_that_no_host_can_have():
    async with dialing() as dialer:
        with pytest.raises(UnknownHostError):
            await dialer.dial(endpoint(f"http://{'a' * 64}.test"))


async def test_who_gives_up_takes_no_lookup_from_others(lookups):
    async with Server(polite) as server, dialing() as dialer:
        with lookups() as seen:
            where = endpoint(f"http://{HOST}:{URL(server.url).port}")
            first, second = (asyncio.create_task(dialer.dial(where)) for _ in range(2))
            await asyncio.sleep(0)
            first.cancel()
            (await second).close()
        assert seen == [HOST]
        assert first.cancelled()


async def test_nobody_listens():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with dialing() as dialer:
        with pytest.raises(ConnectError, match=rf"^Cannot connect to host 127.0.0.1:{port} \["):
            await dialer.dial(endpoint(f"http://127.0.0.1:{port}"))


def secure(tmp_path, authority, name):
    return server_context(tmp_path, authority.issue(name, "127.0.0.1"))


@pytest.mark.parametrize("by_tls", [False, True])
async def test_a_tunnel(tmp_path, by_tls):
    """Also through a proxy whose own connections use TLS."""
    authority = Authority()
    trusting = client_context(ca=authority.pem, verify=True, certificate=None)
    async with (
        Server(polite, secure(tmp_path, authority, "server")) as server,
        Tunnel(tls=secure(tmp_path, authority, "proxy") if by_tls else None) as tunnel,
        dialing() as dialer,
    ):
        proxy = Proxy(f"{'https' if by_tls else 'http'}://127.0.0.1:{tunnel.port}", "Basic YTpi")
        connection = await dialer.dial(endpoint(server.url, tls=trusting, proxy=proxy))
        connection.write((b"GET / HTTP/1.1\r\n\r\n",))
        assert (await connection.answer()).status == 200
        await read_whole(connection, 1000)
        connection.close()
    assert tunnel.lines == [f"CONNECT 127.0.0.1:{URL(server.url).port} HTTP/1.1"]
    assert "Proxy-Authorization: Basic YTpi" in tunnel.heads[0]


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", ServerDisconnectedError),
        (b"HTTP/1.1 200 OK\r\n", ServerDisconnectedError),
        (b"SSH-2.0\r\n\r\n", HTTPError),
        (b"HTTP/1.1 x\r\n\r\n", HTTPError),
        (b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000, HTTPError),
    ],
)
async def test_a_proxy_that_makes_no_sense(answer, error):
    async def nonsense(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(nonsense, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    where = endpoint(
        "https://server.test",
        tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
        proxy=Proxy(f"http://127.0.0.1:{port}"),
    )
    async with server, dialing() as dialer:
        with pytest.raises(error):
            await dialer.dial(where)


def test_a_url_without_a_host():
    with pytest.raises(HTTPError, match="no Host"):
        endpoint("/path")
