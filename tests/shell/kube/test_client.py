"""The client on real sockets: what goes over the wire, what comes back as which exception.

Also: pace and headers. Left out: where connection settings come from (test_kubeconfig.py).
"""

import asyncio
import gc
import json
import re
import weakref
from contextlib import suppress
from socket import AF_INET, IPPROTO_TCP, SO_KEEPALIVE, SOCK_STREAM, SOL_SOCKET, TCP_KEEPIDLE

import numpy as np
import pytest

from app.http.proxy import Proxy, parse_proxy
from app.kube import client as client_module
from app.kube.client import (
    ClientLimits,
    KubeClient,
    _keepalive_socket,
)
from app.kube.connection import (
    ClientCertificate,
    Connection,
    Identity,
    fixed_source,
    token_file_source,
    user_agent,
)
from app.kube.credentials import CredentialFailures
from app.kube.errors import (
    AlreadyExists,
    Conflict,
    ConnectionFailed,
    ConnectionSettingsError,
    Expired,
    Forbidden,
    KubeApiError,
    NotFound,
    NotLeading,
    ServerUnavailable,
    TooManyRequests,
    Unauthorized,
)
from app.kube.kubeconfig import load_connection
from app.kube.reviews import reviewing
from app.kube.transport import STRATEGIC_MERGE_PATCH
from app.tools.subprocesses import reserved_port
from tests.shell.clock import leap
from tests.shell.http.proxies import Tunnel
from tests.shell.kube.servers import Authority, serving

#: Longer than anything takes here.
LONG = 60.0


@pytest.fixture(scope="module")
def authority():
    return Authority()


def status_body(code, reason, message, **details):
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "code": code,
        "reason": reason,
        "message": message,
        "details": details,
    }


def client_of(url, observer=None, **limits):
    identify = fixed_source(Identity("Bearer secret"))
    return KubeClient(
        Connection(url, identify), agent="test/1", limits=ClientLimits(**limits), observer=observer
    )


async def fine(request):
    await request.answer(200, {"kind": "Pod"})


# ---------------------------------------------------------------- requests


async def test_what_goes_over_the_wire():
    async with serving(fine) as server, client_of(server.url) as client:
        answer = await client.request(
            "PATCH",
            "/api/v1/pods/a",
            body=b'{"status":{}}',
            params={"fieldManager": "a b"},
            content_type=STRATEGIC_MERGE_PATCH,
        )
    (request,) = server.seen
    assert (request.method, request.target) == ("PATCH", "/api/v1/pods/a?fieldManager=a+b")
    assert request.body == b'{"status":{}}'
    host = request.headers.pop("host")
    assert host == f"127.0.0.1:{server.port}"
    assert request.headers == {
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "test/1",
        "authorization": "Bearer secret",
        "content-type": "application/strategic-merge-patch+json",
        "content-length": "13",
    }
    assert (answer.status, json.loads(answer.body)) == (200, {"kind": "Pod"})


async def test_a_get_has_no_content_type():
    async with serving(fine) as server, client_of(server.url) as client:
        await client.request("GET", "/version")
    assert "content-type" not in server.seen[0].headers


async def test_one_type_of_answer_is_accepted():
    async with serving(fine) as server, client_of(server.url) as client:
        await client.request("GET", "/version")
        await client.request("GET", "/version", accept="application/vnd.kubernetes.protobuf")
    assert [request.headers["accept"] for request in server.seen] == [
        "application/json",
        "application/vnd.kubernetes.protobuf",
    ]


async def test_a_server_behind_a_path():
    async with serving(fine) as server:
        connection = Connection(
            f"{server.url}/k8s/clusters/c-1", headers=(("Impersonate-User", "jane"),)
        )
        async with KubeClient(connection, agent="test/1") as client:
            await client.request("GET", "/api/v1/pods/a%20b")
    (request,) = server.seen
    assert request.target == "/k8s/clusters/c-1/api/v1/pods/a%20b"
    assert request.headers["impersonate-user"] == "jane"
    assert "authorization" not in request.headers


async def test_a_header_may_be_repeated():
    groups = (("Impersonate-User", "jane"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b"))
    heads = []

    async def raw(reader, writer):
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()

    listener = await asyncio.start_server(raw, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        connection = Connection(f"http://127.0.0.1:{port}", headers=groups)
        async with KubeClient(connection, agent="test/1") as client:
            await client.request("GET", "/version")
    assert b"Impersonate-Group: a\r\nImpersonate-Group: b\r\n" in heads[0]


def test_a_header_cannot_smuggle_lines():
    with pytest.raises(ConnectionSettingsError, match="the header Impersonate-User cannot hold"):
        Connection("http://x", headers=(("Impersonate-User", "a\r\nX: y"),))


@pytest.mark.parametrize(
    ("method", "repeated"), [("GET", True), ("DELETE", True), ("PATCH", False), ("POST", False)]
)
async def test_a_connection_that_was_closed_meanwhile(method, repeated):
    """The server hangs up on the second request of a connection, as if it had given up on it just before."""
    on_connection = []

    async def once(request):
        on_connection.append(request.writer)
        if on_connection.count(request.writer) == 2:
            request.hang_up()
        else:
            await request.answer(200)

    async with serving(once) as server, client_of(server.url) as client:
        await client.request("GET", "/x")
        if repeated:
            assert (await client.request(method, "/x")).status == 200
        else:
            with pytest.raises(ConnectionFailed) as caught:
                await client.request(method, "/x", body=b"{}")
            assert caught.value.sent is True
    assert len(server.seen) == (3 if repeated else 2)


async def test_interim_answers_are_passed_over():
    async def patiently(request):
        await request.send(b"HTTP/1.1 102 Processing\r\n\r\n")
        await request.answer(201, {"kind": "Event"})

    async with serving(patiently) as server, client_of(server.url) as client:
        answer = await client.request("POST", "/x", body=b"{}")
    assert (answer.status, json.loads(answer.body)) == (201, {"kind": "Event"})


async def test_an_answer_in_chunks():
    async def in_chunks(request):
        await request.begin_stream()
        for part in (b"[1,", b"2]", b""):
            await request.chunk(part)

    async with serving(in_chunks) as server, client_of(server.url) as client:
        for _ in range(2):
            assert (await client.request("GET", "/x")).body == b"[1,2]"
    assert server.connections == 1


async def test_an_answer_that_is_no_http():
    async def babble(request):
        await request.send(b"250 Hello\r\n\r\n")

    async with serving(babble) as server, client_of(server.url) as client:
        with pytest.raises(ConnectionFailed) as caught:
            await client.request("POST", "/x", body=b"{}")
    assert caught.value.sent is True


async def read(client, path):
    async with client.stream(path, params={}, read_timeout=LONG) as chunks:
        return b"".join([chunk async for chunk in chunks])


def by_proxy(server, port, **more):
    return Connection(server, proxy=parse_proxy(f"http://me:s3cret@127.0.0.1:{port}"), **more)


async def test_through_a_proxy():
    async def reply(request):
        if "watch" in request.target:
            await request.begin_stream()
            await request.chunk(b"line")
            await request.chunk(b"")
        await request.answer(200)

    async with serving(reply) as proxy:
        connection = by_proxy("http://api.test:8080/path", proxy.port)
        async with KubeClient(connection, agent="test/1") as client:
            assert (await client.request("GET", "/version")).status == 200
            assert await read(client, "/watch") == b"line"
    assert [request.target for request in proxy.seen] == [
        "http://api.test:8080/path/version",
        "http://api.test:8080/path/watch",
    ]
    for request in proxy.seen:
        assert request.headers["host"] == "api.test:8080"
        assert request.headers["proxy-authorization"] == "Basic bWU6czNjcmV0"


async def test_through_a_tunnel(authority, tmp_path):
    async def reply(request):
        await request.answer(200)

    shown = authority.issue("server", hosts=("127.0.0.1",))
    async with serving(reply, authority.server_tls(tmp_path, shown)) as server, Tunnel() as proxy:
        connection = by_proxy(f"{server.url}/path", proxy.port, ca=authority.pem)
        async with KubeClient(connection, agent="test/1") as client:
            for _ in range(2):
                await client.request("GET", "/version")
            await read(client, "/watch")
    assert [request.target for request in server.seen] == [
        "/path/version",
        "/path/version",
        "/path/watch",
    ]
    assert not [request for request in server.seen if "proxy-authorization" in request.headers]
    assert proxy.lines == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
    assert all("Proxy-Authorization: Basic bWU6czNjcmV0" in head for head in proxy.heads)


@pytest.mark.parametrize(
    "ask", [lambda client: client.request("GET", "/x"), lambda c: read(c, "/x")]
)
async def test_a_proxy_that_refuses(ask):
    async with Tunnel("407 Proxy Authentication Required") as proxy:
        connection = by_proxy("https://api.test:6443", proxy.port)
        async with KubeClient(connection, agent="test/1") as client:
            with pytest.raises(ConnectionFailed) as caught:
                await ask(client)
    assert str(caught.value) == "GET /x: proxy answered 407 Proxy Authentication Required"
    assert caught.value.sent is False
    for error in (caught.value, caught.value.__cause__, connection):
        assert "s3cret" not in f"{error} {error!r}"


def test_a_dead_peer_will_be_noticed():
    with _keepalive_socket((AF_INET, SOCK_STREAM, 0, "", ("127.0.0.1", 1))) as made:
        assert made.getsockopt(SOL_SOCKET, SO_KEEPALIVE) == 1
        assert made.getsockopt(IPPROTO_TCP, TCP_KEEPIDLE) == 30


async def test_connections_are_kept():
    async with serving(fine) as server, client_of(server.url) as client:
        for _ in range(5):
            await client.request("POST", "/x", body=b"{}")
    assert (len(server.seen), server.connections) == (5, 1)


async def test_at_most_limit_exchanges_at_the_same_time():
    present = peak = 0

    async def slow(request):
        nonlocal present, peak
        present += 1
        peak = max(peak, present)
        while peak < 3:
            await asyncio.sleep(0)
        for _ in range(100):  # turns for a fourth to come
            await asyncio.sleep(0)
        present -= 1
        await request.answer(200)

    async with serving(slow) as server, client_of(server.url, exchanges=3) as client:
        await asyncio.gather(*(client.request("GET", "/x") for _ in range(12)))
    assert peak == 3


async def test_out_of_its_context_it_refuses():
    client = client_of("http://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="outside"):
        await client.request("GET", "/x")


def test_the_user_agent():
    agent = user_agent("0.1.0", "leader-election")
    assert re.fullmatch(r"aiokube-scheduler/0\.1\.0 \(\w+/\w+\) leader-election", agent)


# ---------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("code", "reason", "kind"),
    [
        (400, "BadRequest", KubeApiError),
        (401, "Unauthorized", Unauthorized),
        (403, "Forbidden", Forbidden),
        (404, "NotFound", NotFound),
        (409, "Conflict", Conflict),
        (409, "AlreadyExists", AlreadyExists),
        (410, "Expired", Expired),
        (422, "Invalid", KubeApiError),
        (500, "InternalError", ServerUnavailable),
        (503, "ServiceUnavailable", ServerUnavailable),
        (504, "Timeout", ServerUnavailable),
    ],
)
async def test_a_status_becomes_an_exception(code, reason, kind):
    async def refuse(request):
        await request.answer(code, status_body(code, reason, "the server says no", name="a"))

    async with serving(refuse) as server, client_of(server.url) as client:
        with pytest.raises(KubeApiError, match="the server says no") as caught:
            await client.request("GET", "/x")
    assert type(caught.value) is kind
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert caught.value.details.name == "a"


async def test_a_refused_request_is_freed_without_a_collection():
    async def refuse(request):
        await request.answer(404, status_body(404, "NotFound", "gone", name="a"))

    async with serving(refuse) as server, client_of(server.url) as client:
        gc.disable()
        try:
            with pytest.raises(NotFound) as caught:
                await client.request("GET", "/x")
            gone = weakref.ref(caught.value)
            del caught
            assert gone() is None
        finally:
            gc.enable()


@pytest.mark.parametrize("body", [b"<html>secrets of a proxy</html>", b'{"message":"secrets"}'])
async def test_a_body_that_is_no_status_is_not_shown(body):
    async def refuse(request):
        await request.answer(502, body)

    async with serving(refuse) as server, client_of(server.url) as client:
        with pytest.raises(ServerUnavailable) as caught:
            await client.request("GET", "/x")
    assert str(caught.value) == "GET /x: the server answered 502 without details"


async def test_a_long_message_is_cut():
    async def refuse(request):
        await request.answer(422, status_body(422, "Invalid", "x" * 5000))

    async with serving(refuse) as server, client_of(server.url) as client:
        with pytest.raises(KubeApiError) as caught:
            await client.request("GET", "/x")
    assert len(str(caught.value)) == 1024


async def test_a_huge_error_is_cut(monkeypatch):
    monkeypatch.setattr(client_module, "MAX_ERROR_BODY", 1000)

    async def flood(request):
        await request.begin_stream(500)
        with suppress(OSError):
            while True:
                await request.chunk(b"x" * 5000)

    async with serving(flood) as server, client_of(server.url) as client:
        for ask in (client.request("GET", "/x"), read(client, "/x")):
            with pytest.raises(ServerUnavailable, match="answered 500 without details"):
                await ask
    assert server.connections == 2


@pytest.mark.parametrize(
    ("method", "limit"), [("GET", "MAX_READ"), ("POST", "MAX_WRITTEN"), ("PATCH", "MAX_WRITTEN")]
)
async def test_an_answer_that_is_too_large(method, limit, monkeypatch):
    monkeypatch.setattr(client_module, limit, 9)

    async def reply(request):
        await request.answer(200, b"x" * (10 if request.target == "/x" else 9))

    async with serving(reply) as server, client_of(server.url) as client:
        with pytest.raises(ConnectionFailed, match="the answer has more than 9 bytes") as caught:
            await client.request(method, "/x", body=b"{}")
        assert caught.value.sent
        assert (await client.request(method, "/y", body=b"{}")).body == b"x" * 9


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"Status","message":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"kind":"Status","message":"\xff"}',
        b'{"kind":"Status","message":"no","code":' + b"9" * 5000 + b"}",
    ],
    ids=["nested", "not UTF-8", "a long number"],
)
async def test_a_status_that_cannot_be_read(body):
    async def refuse(request):
        await request.answer(503, body)

    async with serving(refuse) as server, client_of(server.url) as client:
        with pytest.raises(ServerUnavailable, match="answered 503 without details"):
            await client.request("GET", "/x")


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [
        ("7", {}, 7.0),
        ("Fri, 01 Jan 2038 00:00:00 GMT", {}, None),
        ("\u00b2", {}, None),
        ("-1", {}, None),
        ("9" * 400, {}, float("inf")),
        (None, {"retryAfterSeconds": 10**18}, 2.0**31 - 1),
    ],
)
async def test_how_long_to_wait(header, details, seconds):
    async def refuse(request):
        headers = {"Retry_After": header} if header else {}
        await request.answer(429, status_body(429, "TooManyRequests", "no", **details), **headers)

    async with serving(refuse) as server, client_of(server.url, throttled=0) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.request("GET", "/x")
    assert caught.value.retry_after == seconds


async def test_a_redirect_is_not_followed():
    async def elsewhere(request):
        await request.answer(302, Location="/y")

    async with serving(elsewhere) as server, client_of(server.url) as client:
        with pytest.raises(KubeApiError, match="302"):
            await client.request("GET", "/x")
    assert len(server.seen) == 1


async def test_nobody_listens():
    with reserved_port() as port:
        async with client_of(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(ConnectionFailed, match="POST /x: ") as caught:
                await client.request("POST", "/x", body=b"{}")
    assert caught.value.sent is False
    assert caught.value.__cause__ is not None


async def hang_up(request):
    request.hang_up()


async def half_an_answer(request):
    await request.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
    request.writer.close()


async def never(request):
    leap(LONG)
    await asyncio.Event().wait()


@pytest.mark.parametrize("by_proxy", [False, True], ids=["directly", "by a proxy"])
@pytest.mark.parametrize("reply", [hang_up, half_an_answer, never])
async def test_an_answer_that_is_lost(reply, by_proxy):
    async with serving(reply) as server:
        proxied = Connection("http://api.test:8080", proxy=Proxy(server.url))
        connection = proxied if by_proxy else Connection(server.url)
        async with KubeClient(connection, agent="test/1") as client:
            with pytest.raises(ConnectionFailed) as caught:
                await client.request("POST", "/x", body=b"{}", timeout=LONG)
    assert caught.value.sent is True
    assert len(server.seen) == 1, "a POST is not silently repeated"


async def test_exchanges_are_observed():
    seen = []

    async def sometimes(request):
        if request.target == "/x":
            await request.answer(404)
        else:
            request.hang_up()

    def observer(method, status, seconds):
        seen.append((method, status, seconds >= 0))

    async with (
        serving(sometimes) as server,
        client_of(server.url, observer=observer) as client,
    ):
        for path in ("/x", "/y"):
            with pytest.raises(KubeApiError):
                await client.request("POST", path)
    assert seen == [("POST", 404, True), ("POST", 0, True)]


async def test_a_request_given_up_leaves_the_client_usable():
    async def first_never(request):
        if len(server.seen) == 1:
            await asyncio.Event().wait()
        await request.answer(200)

    async with serving(first_never) as server, client_of(server.url, exchanges=1) as client:
        task = asyncio.create_task(client.request("GET", "/x"))
        while not server.seen:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await client.request("GET", "/y")


# ---------------------------------------------------------------- 429, guards, pace


async def test_being_throttled_is_waited_out():
    async def twice(request):
        if len(server.seen) <= 2:
            await request.answer(429, status_body(429, "TooManyRequests", "busy"), Retry_After="0")
        else:
            await request.answer(200)

    async with serving(twice) as server, client_of(server.url) as client:
        assert (await client.request("POST", "/x", body=b"1")).status == 200
    assert [request.body for request in server.seen] == [b"1"] * 3


async def test_being_throttled_for_ever_is_an_error():
    async def always(request):
        await request.answer(429, status_body(429, "TooManyRequests", "busy", retryAfterSeconds=7))

    async with serving(always) as server, client_of(server.url, throttled=0) as client:
        with pytest.raises(TooManyRequests) as caught:
            await client.request("GET", "/x")
    assert caught.value.retry_after == 7


async def test_the_guard_is_asked_when_its_turn_has_come():
    leading = True

    async def lose_it(request):
        nonlocal leading
        leading = False
        await request.answer(200)

    async with serving(lose_it) as server, client_of(server.url, exchanges=1) as client:
        outcomes = await asyncio.gather(
            *(client.request("POST", f"/{number}", guard=lambda: leading) for number in range(3)),
            return_exceptions=True,
        )
    assert [type(outcome) for outcome in outcomes[1:]] == [NotLeading, NotLeading]
    assert [request.target for request in server.seen] == ["/0"]


async def test_the_guard_is_asked_once_connected(authority, tmp_path):
    """A handshake, or a proxy, may take longer than the lease lasts."""
    leading, sent, ended = True, [], asyncio.Event()
    shown = authority.server_tls(tmp_path, authority.issue("server", hosts=("127.0.0.1",)))

    async def slow_handshake(reader, writer):
        nonlocal leading
        leading = False
        with suppress(OSError):
            await writer.start_tls(shown)
            while data := await reader.read(100):
                sent.append(data)
        writer.close()
        ended.set()

    listener = await asyncio.start_server(slow_handshake, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        connection = Connection(f"https://127.0.0.1:{port}", ca=authority.pem)
        seen = []
        async with KubeClient(
            connection, agent="test/1", observer=lambda *a: seen.append(a)
        ) as client:
            with pytest.raises(NotLeading, match="POST /x: not sent"):
                await client.request("POST", "/x", params={"a": "b"}, guard=lambda: leading)
        await ended.wait()
    assert sent == []
    assert seen == [], "what was not sent is not observed"


async def test_the_guard_is_asked_once_a_tunnel_is_there(authority, tmp_path):
    leading = True

    def lose_it():
        nonlocal leading
        leading = False

    shown = authority.server_tls(tmp_path, authority.issue("server", hosts=("127.0.0.1",)))
    async with serving(fine, shown) as server, Tunnel(on_connect=lose_it) as proxy:
        connection = by_proxy(server.url, proxy.port, ca=authority.pem)
        async with KubeClient(connection, agent="test/1") as client:
            with pytest.raises(NotLeading):
                await client.request("POST", "/x", body=b"{}", guard=lambda: leading)
            leading = True
            await client.request("POST", "/y", body=b"{}", guard=lambda: True)
    assert [request.target for request in server.seen] == ["/y"]


async def test_requests_are_paced():
    loop = asyncio.get_running_loop()
    async with serving(fine) as server, client_of(server.url, qps=50, burst=2) as client:
        started = loop.time()
        await asyncio.gather(*(client.request("GET", "/x") for _ in range(6)))
    assert loop.time() - started >= 4 / 50 - 0.001


# ---------------------------------------------------------------- credentials


async def test_a_rotated_token_is_used_after_a_401(tmp_path):
    token = tmp_path / "token"
    token.write_text("old\n")

    async def check(request):
        if request.headers["authorization"] == "Bearer new":
            await request.answer(200)
        else:
            await request.answer(401, status_body(401, "Unauthorized", "Unauthorized"))

    async with serving(check) as server:
        connection = Connection(server.url, token_file_source(token))
        async with KubeClient(connection, agent="test/1") as client:
            client._credentials._asked -= 60
            token.write_text("new\n")
            answers = await asyncio.gather(
                *(client.request("POST", "/x", body=b"{}") for _ in range(4))
            )
    assert [answer.status for answer in answers] == [200] * 4
    assert [request.body for request in server.seen] == [b"{}"] * 8


async def test_a_401_that_no_renewal_heals_is_reported(tmp_path):
    token = tmp_path / "token"
    token.write_text("old")

    async def refuse(request):
        await request.answer(401, status_body(401, "Unauthorized", "Unauthorized"))

    async with serving(refuse) as server:
        connection = Connection(server.url, token_file_source(token))
        async with KubeClient(connection, agent="test/1") as client:
            client._credentials._asked -= 60
            with pytest.raises(Unauthorized):
                await client.request("GET", "/x")
            with pytest.raises(Unauthorized):
                async with client.stream("/x", params={}, read_timeout=LONG):
                    pass
    assert len(server.seen) == 2


async def test_refused_credentials_are_told_once_for_all_clients(caplog):
    async def refuse(request):
        await request.answer(401, status_body(401, "Unauthorized", "Unauthorized"))

    failures = CredentialFailures()
    async with serving(refuse) as server:
        connection = Connection(server.url, fixed_source(Identity("Bearer nobody's")))
        for purpose in ("scheduler", "events"):
            async with KubeClient(connection, agent=purpose, failures=failures) as client:
                with pytest.raises(Unauthorized):
                    await client.request("GET", "/x")
                with pytest.raises(Unauthorized):
                    async with client.stream("/x", params={}, read_timeout=LONG):
                        pass
    (said,) = [r.getMessage() for r in caplog.records if r.name == "app.kube.credentials"]
    assert said.startswith(f"{server.url} does not accept these credentials (")
    assert "nobody's" not in said
    assert failures.refused == 4


async def test_refused_reviews_are_counted_and_told(caplog):
    async def refuse(request):
        await request.answer(401, status_body(401, "Unauthorized", "Unauthorized"))

    failures = CredentialFailures()
    async with serving(refuse) as server:
        reviews = reviewing(
            Connection(server.url, fixed_source(Identity("Bearer nobody's"))),
            "",
            agent="reviews",
            rng=np.random.default_rng(0),
            wall=lambda: 0.0,
            observer=lambda _server: lambda *_: None,
            failures=failures,
        )
        async with reviews as opened:
            with pytest.raises(Unauthorized):
                await opened.who_has("token")
    assert failures.refused == 1
    assert f"{server.url} does not accept these credentials (" in caplog.text


async def test_a_plugin_is_run_again_after_a_401(tmp_path):
    script = tmp_path / "plugin"
    script.write_text(
        f"#!/bin/sh\necho run >> {tmp_path}/runs\n"
        f"token=$(wc -l < {tmp_path}/runs | tr -d ' ')\n"
        'echo "{\\"apiVersion\\":\\"client.authentication.k8s.io/v1\\",\\"kind\\":\\"ExecCredential\\",'
        '\\"status\\":{\\"token\\":\\"$token\\"}}"\n'
    )
    script.chmod(0o755)

    async def check(request):
        if request.headers["authorization"] == "Bearer 2":
            await request.answer(200)
        else:
            await request.answer(401, status_body(401, "Unauthorized", "Unauthorized"))

    async with serving(check) as server:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": server.url}}],
            "users": [
                {
                    "name": "u",
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1",
                            "command": str(script),
                        }
                    },
                }
            ],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(config))
        connection = load_connection(kubeconfig=str(path), wall=lambda: 0.0, environ={})
        async with KubeClient(connection, agent="test/1") as client:
            client._credentials._asked -= 60
            assert (await client.request("POST", "/x", body=b"{}")).status == 200
    assert [request.headers["authorization"] for request in server.seen] == [
        "Bearer 1",
        "Bearer 2",
    ]


async def test_credentials_that_are_missing_are_reported_at_the_start(tmp_path):
    connection = Connection("http://127.0.0.1:1", token_file_source(tmp_path / "token"))
    with pytest.raises(ConnectionSettingsError, match="unable to read token file"):
        async with KubeClient(connection, agent="test/1"):
            pass


# ---------------------------------------------------------------- streams


async def collect(client, read_timeout=LONG):
    async with client.stream("/w", params={"watch": "true"}, read_timeout=read_timeout) as stream:
        return b"".join([chunk async for chunk in stream])


async def test_a_stream_is_read_to_its_end():
    async def reply(request):
        await request.begin_stream()
        for part in (b'{"a":', b"1}\n", b"x" * 3_000_000, b"\n", b""):
            await request.chunk(part)

    async with serving(reply) as server, client_of(server.url) as client:
        assert await collect(client) == b'{"a":1}\n' + b"x" * 3_000_000 + b"\n"
    assert server.seen[0].target == "/w?watch=true"


async def test_a_stream_that_breaks():
    async def reply(request):
        await request.begin_stream()
        await request.chunk(b"one\ntw")
        request.writer.close()

    async with serving(reply) as server, client_of(server.url) as client:
        with pytest.raises(ConnectionFailed):
            await collect(client)


async def test_a_stream_that_falls_silent():
    async def reply(request):
        await request.begin_stream()
        await request.chunk(b"one\n")
        await never(request)

    async with serving(reply) as server, client_of(server.url) as client:
        with pytest.raises(ConnectionFailed, match="no answer in time"):
            await collect(client, read_timeout=LONG)


async def test_a_stream_that_never_begins():
    async with serving(never) as server, client_of(server.url, timeout=LONG) as client:
        with pytest.raises(ConnectionFailed):
            await collect(client, read_timeout=10 * LONG)


async def test_a_stream_that_is_refused():
    async def refuse(request):
        await request.answer(410, status_body(410, "Expired", "too old resource version"))

    async with serving(refuse) as server, client_of(server.url) as client:
        with pytest.raises(Expired, match="too old"):
            await collect(client)


async def test_streams_do_not_take_the_place_of_requests():
    async def reply(request):
        if request.target.startswith("/w"):
            await request.begin_stream()
            await asyncio.Event().wait()
        await request.answer(200)

    async with (
        serving(reply) as server,
        client_of(server.url, exchanges=1) as client,
        client.stream("/w", params={}, read_timeout=LONG),
    ):
        assert (await client.request("GET", "/x")).status == 200


# ---------------------------------------------------------------- TLS


async def test_a_private_authority_and_a_client_certificate(authority, tmp_path):
    shown = authority.issue("server", hosts=("127.0.0.1",))
    mine = authority.issue("scheduler", client=True)
    certificates = []

    async def reply(request):
        certificates.append(request.writer.get_extra_info("peercert")["subject"])
        await request.answer(200)

    identity = Identity(certificate=ClientCertificate(mine.certificate, mine.key))
    async with serving(reply, authority.server_tls(tmp_path, shown, ask=True)) as server:
        connection = Connection(server.url, fixed_source(identity), ca=authority.pem)
        async with KubeClient(connection, agent="test/1") as client:
            await client.request("GET", "/x")
    assert certificates == [((("commonName", "scheduler"),),)]


async def test_a_stranger_is_not_believed(authority, tmp_path):
    shown = authority.issue("server", hosts=("127.0.0.1",))
    async with serving(fine, authority.server_tls(tmp_path, shown)) as server:
        connection = Connection(server.url, ca=Authority().pem)
        async with KubeClient(connection, agent="test/1") as client:
            with pytest.raises(ConnectionFailed, match=r"(?i)certificate verify failed") as caught:
                await client.request("GET", "/x")
    assert caught.value.sent is False
    assert server.seen == []


async def test_insecure_means_insecure(authority, tmp_path):
    shown = authority.issue("server", hosts=("elsewhere",))
    async with (
        serving(fine, authority.server_tls(tmp_path, shown)) as server,
        KubeClient(Connection(server.url, verify=False), agent="test/1") as client,
    ):
        assert (await client.request("GET", "/x")).status == 200


async def test_a_server_by_another_name(authority, tmp_path):
    shown = authority.issue("server", hosts=("api.cluster.test",))
    async with serving(fine, authority.server_tls(tmp_path, shown)) as server:
        plain = Connection(server.url, ca=authority.pem)
        async with KubeClient(plain, agent="test/1") as client:
            with pytest.raises(ConnectionFailed):
                await client.request("GET", "/x")
        named = Connection(server.url, ca=authority.pem, tls_server_name="api.cluster.test")
        async with KubeClient(named, agent="test/1") as client:
            assert (await client.request("GET", "/x")).status == 200


def test_tls_settings_that_cannot_be_used(authority):
    with pytest.raises(ConnectionSettingsError, match="TLS settings for https://x are unusable"):
        Connection("https://x", ca=b"no certificate").tls_context(None)


def test_plain_http_needs_no_tls():
    assert Connection("http://x").tls_context(None) is None


@pytest.mark.parametrize("status", [b"101 Switching Protocols", b"000 x", b"099 x"])
@pytest.mark.parametrize("method", ["GET", "DELETE", "POST"])
async def test_a_status_below_200_is_no_answer(status, method):
    async def raw(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        writer.close()

    listener = await asyncio.start_server(raw, "127.0.0.1", 0)
    async with listener:
        port = listener.sockets[0].getsockname()[1]
        connection = Connection(f"http://127.0.0.1:{port}")
        async with KubeClient(connection, agent="test/1") as client:
            with pytest.raises(ConnectionFailed) as failed:
                await client.request(method, "/api/v1/pods/p")
            assert failed.value.sent
            with pytest.raises(ConnectionFailed):
                async with client.stream("/api/v1/pods", params={}, read_timeout=5):
                    pass
