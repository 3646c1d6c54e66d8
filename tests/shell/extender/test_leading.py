"""Only a leader calls extenders: they reserve things when they filter, and bind pods."""

import pytest

from app.extender.breaker import State
from app.extender.client import HTTPExtender
from app.extender.config import TLSConfig, Verb
from app.extender.errors import CallOutcome, ExtenderError
from app.http import proxy as proxies
from tests.shell.extender.fakes import about, config, pod
from tests.shell.extender.servers import Authority, Server, polite, server_context
from tests.shell.http.proxies import Tunnel

CALLS = {
    Verb.FILTER: lambda ext: ext.filter(about("a")),
    Verb.PRIORITIZE: lambda ext: ext.prioritize(about("a")),
    Verb.PREEMPT: lambda ext: ext.preempt(pod(), {}, lambda _node: None),
    Verb.BIND: lambda ext: ext.bind(pod(), "a"),
}
calls = pytest.mark.parametrize("verb", CALLS)


@calls
async def test_who_does_not_lead_does_not_call(verb):
    async with Server(polite) as server:
        ext = HTTPExtender(config(url_prefix=server.url), may_call=lambda: False)
        for _ in range(10):
            with pytest.raises(ExtenderError, match="does not hold the leader lease") as caught:
                await CALLS[verb](ext)
        await ext.close()
    assert server.requests == []
    assert (caught.value.outcome, caught.value.sent) == (CallOutcome.CANCELLED, False)
    assert not caught.value.answer_lost
    assert ext.state(verb) is State.CLOSED, "the extender has done nothing wrong"


@calls
async def test_a_lease_that_is_lost_while_connecting(verb, tmp_path, monkeypatch):
    leading, authority = True, Authority()

    def lose_it():
        nonlocal leading
        leading = False

    tls = server_context(tmp_path, authority.issue("server", "127.0.0.1"))
    async with Server(polite, tls) as server, Tunnel(on_connect=lose_it) as tunnel:
        way = proxies.Proxy(f"http://127.0.0.1:{tunnel.port}")
        monkeypatch.setattr("app.extender.client.proxy_for", lambda _url, environ: way)
        settings = config(url_prefix=server.url, tls=TLSConfig(ca_data=authority.pem))
        ext = HTTPExtender(settings, may_call=lambda: leading)
        with pytest.raises(ExtenderError, match="does not hold the leader lease"):
            await CALLS[verb](ext)
        await ext.close()
    assert len(tunnel.heads) == 1
    assert server.requests == []


async def test_a_lease_that_is_lost_before_a_redirect_is_followed():
    leading = True

    async def serve(connection):
        nonlocal leading
        await connection.request()
        leading = False
        connection.answer(b"", "307 Moved", Location=f"{second.url}/f")

    async with Server(polite) as second, Server(serve) as first:
        ext = HTTPExtender(config(url_prefix=first.url), may_call=lambda: leading)
        with pytest.raises(ExtenderError, match="does not hold the leader lease"):
            await ext.filter(about("a"))
        await ext.close()
    assert second.requests == []
