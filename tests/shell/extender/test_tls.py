"""TLS as kube-scheduler does it: who is verified, who is warned about, what changes while we run."""

import asyncio
import socket
import ssl

import pytest

from app.extender.client import HTTPExtender
from app.extender.config import ExtenderConfigError, TLSConfig
from app.extender.errors import ExtenderError, TransportError
from app.extender.events import ExtenderWarning
from app.extender.tls import TLSSource
from app.extender.transport import HTTPTransport
from app.http.proxy import Proxy
from app.tools.subprocesses import reserved_port
from app.wire.extender_v1 import Body
from tests.shell.extender.fakes import Seen, about, config, pod
from tests.shell.extender.servers import Authority, Server, polite, server_context
from tests.shell.http.proxies import Tunnel

HTTPS = "https://127.0.0.1:1"


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture(scope="module")
def pair(authority):
    return authority.issue("server", "127.0.0.1", "ext.test")


@pytest.fixture
def tls_server(tmp_path, pair):
    return Server(polite, server_context(tmp_path, pair))


def source(url=HTTPS, *, enable_https=False, refuse=False, **tls):
    tls_config = TLSConfig(**tls) if tls else None
    return TLSSource(
        config(
            url_prefix=url, enable_https=enable_https, tls=tls_config, require_verified_tls=refuse
        )
    )


async def call(server, tls):
    transport = HTTPTransport(tls=tls)
    try:
        return await transport.post(
            f"{server.url}/f", Body([b"{}"]), headers={}, timeout_seconds=60
        )
    finally:
        await transport.close()


async def refused(server, tls):
    with pytest.raises(TransportError) as caught:
        await call(server, tls)
    assert not caught.value.sent
    return str(caught.value)


class TestVerification:
    async def test_with_the_right_authority(self, tls_server, authority):
        async with tls_server as server:
            assert (await call(server, source(ca_data=authority.pem))).status == 200

    async def test_with_the_authority_in_a_file(self, tls_server, authority, tmp_path):
        file = tmp_path / "ca.crt"
        file.write_bytes(authority.pem)
        async with tls_server as server:
            assert (await call(server, source(ca_file=str(file)))).status == 200

    async def test_with_another_authority(self, tls_server):
        async with tls_server as server:
            text = await refused(server, source(ca_data=Authority("another").pem))
        why = "x509: certificate signed by unknown authority"
        assert text == f'Post "{server.url}/f": tls: failed to verify certificate: {why}'

    async def test_with_those_of_the_system(self, tls_server):
        async with tls_server as server:
            assert "failed to verify certificate" in await refused(server, source())

    async def test_https_enabled_without_an_authority(self, tls_server):
        async with tls_server as server:
            assert (await call(server, source(enable_https=True))).status == 200

    async def test_insecure(self, tls_server):
        async with tls_server as server:
            assert (await call(server, source(insecure=True))).status == 200

    async def test_https_enabled_with_an_authority_verifies(self, tls_server):
        tls = source(enable_https=True, ca_data=Authority("another").pem)
        async with tls_server as server:
            assert "failed to verify certificate" in await refused(server, tls)

    @pytest.mark.parametrize(("name", "good"), [("ext.test", True), ("other.test", False)])
    async def test_the_server_name(self, tls_server, authority, name, good):
        tls = source(ca_data=authority.pem, server_name=name)
        async with tls_server as server:
            if good:
                assert (await call(server, tls)).status == 200
            else:
                assert "Hostname mismatch" in await refused(server, tls)

    async def test_a_client_certificate(self, tmp_path, pair, authority):
        cert, key = authority.issue("client")
        context = server_context(tmp_path, pair, clients_from=authority)
        async with Server(polite, context) as server:
            tls = source(ca_data=authority.pem, cert_data=cert, key_data=key)
            assert (await call(server, tls)).status == 200

    @pytest.mark.parametrize(
        ("version", "alert"),
        [
            (ssl.TLSVersion.TLSv1_2, "handshake failure"),
            (ssl.TLSVersion.TLSv1_3, "certificate required"),
        ],
    )
    async def test_no_client_certificate(self, tmp_path, pair, authority, version, alert):
        """In TLS 1.3 the server says so after the handshake, when the request is on its way."""
        context = server_context(tmp_path, pair, clients_from=authority)
        context.maximum_version = version

        def serve(listening):
            peer, _ = listening.accept()
            with peer.dup() as rest:
                with pytest.raises(ssl.SSLError):
                    context.wrap_socket(peer, server_side=True)
                rest.settimeout(60)
                while rest.recv(65536):  # what is left unread takes the alert with it
                    pass

        transport = HTTPTransport(tls=source(ca_data=authority.pem))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            url = f"https://127.0.0.1:{listening.getsockname()[1]}/f"
            serving = asyncio.create_task(asyncio.to_thread(serve, listening))
            with pytest.raises(TransportError) as caught:
                await transport.post(url, Body([b"{}"]), headers={}, timeout_seconds=60)
            await serving
        await transport.close()
        assert str(caught.value) == f'Post "{url}": remote error: tls: {alert}'

    async def test_a_server_that_does_not_speak_tls(self, authority):
        async def serve(connection):
            await connection.reader.read(1)
            connection.answer(b"", "400 Bad Request")

        async with Server(serve) as server:
            server.url = server.url.replace("http:", "https:")
            text = await refused(server, source(ca_data=authority.pem))
        why = "first record does not look like a TLS handshake"
        assert text == f'Post "{server.url}/f": tls: {why}'

    async def test_a_server_that_hangs_up_during_the_handshake(self, authority):
        async def serve(connection):
            await connection.reader.read(1)

        async with Server(serve) as server:
            server.url = server.url.replace("http:", "https:")
            text = await refused(server, source(ca_data=authority.pem))
        assert text == f'Post "{server.url}/f": EOF'

    async def test_idle_tls_connections_are_used_again(self, tls_server, authority):
        transport = HTTPTransport(tls=source(ca_data=authority.pem))
        async with tls_server as server:
            for _ in range(3):
                await transport.post(server.url, Body([b"{}"]), headers={}, timeout_seconds=60)
            server.connections[0].hang_up()
            await transport.post(server.url, Body([b"{}"]), headers={}, timeout_seconds=60)
        await transport.close()
        assert [number for number, _ in server.requests] == [0, 0, 0, 1]


class TestSettings:
    def test_an_authority_and_insecure(self, authority):
        with pytest.raises(ExtenderConfigError, match="with the insecure flag is not allowed"):
            source(insecure=True, ca_data=authority.pem)

    def test_warnings(self):
        assert source().warnings == ()
        assert source("http://h").warnings == ()
        [warning] = source(enable_https=True).warnings
        assert warning == (
            f"extender {HTTPS}: the server's certificate is not verified, because enableHTTPS is set and no CA is "
            "given; name its authority in tlsConfig.caFile or caData"
        )
        [warning] = source(insecure=True).warnings
        assert "because tlsConfig.insecure is set" in warning
        [warning] = source("http://h", enable_https=True).warnings
        assert "calls are not encrypted" in warning

    @pytest.mark.parametrize("how", [{"enable_https": True}, {"insecure": True}])
    def test_the_switch_that_refuses(self, how):
        with pytest.raises(ExtenderConfigError, match=r"not verified, because .* that is refused"):
            source(refuse=True, **how)

    def test_the_switch_does_not_mind_verification(self, authority):
        assert source(refuse=True, enable_https=True, ca_data=authority.pem).warnings == ()

    def test_half_a_client_certificate_is_not_used(self, authority):
        cert, key = authority.issue("client")
        [warning] = source(cert_data=cert).warnings
        assert "a client certificate without its key; it is not used" in warning
        [warning] = source(key_data=key).warnings
        assert "a client key without its certificate" in warning

    def test_data_wins_over_files(self, authority):
        assert source(ca_data=authority.pem, ca_file="/no/such/file").context(0.0) is not None

    @pytest.mark.parametrize(
        ("fields", "problem"),
        [
            ({"ca_file": "/no/such/ca.crt"}, "No such file or directory: '/no/such/ca.crt'"),
            ({"ca_data": b"rubbish"}, "cannot be used"),
            ({"ca_data": b"\xff"}, "Empty certificate data"),
            ({"cert_data": b"rubbish", "key_data": b"rubbish"}, "cannot be used"),
        ],
    )
    def test_material_that_cannot_be_used(self, fields, problem):
        with pytest.raises(ExtenderConfigError, match=f"extender {HTTPS}: tlsConfig: .*{problem}"):
            source(**fields)

    def test_an_encrypted_key(self, authority):
        cert, key = authority.issue("client", password=b"word")
        with pytest.raises(ExtenderConfigError, match="the key is encrypted"):
            source(cert_data=cert, key_data=key)

    def test_plain_http_needs_no_context(self):
        assert source("http://h").context(0.0) is None

    def test_keys_are_not_shown(self, authority):
        cert, key = authority.issue("client")
        tls = TLSConfig(cert_data=cert, key_data=key, ca_data=authority.pem)
        shown = repr(config(url_prefix="https://u:secret@h", tls=tls))
        assert "BEGIN" not in shown
        assert "secret" not in shown


class TestReload:
    @pytest.fixture
    def files(self, tmp_path, authority):
        paths = {name: tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt")}
        cert, key = authority.issue("client")
        for path, data in zip(paths.values(), (cert, key, authority.pem), strict=True):
            path.write_bytes(data)
        return paths

    @pytest.fixture
    def watched(self, files):
        return source(
            cert_file=str(files["tls.crt"]),
            key_file=str(files["tls.key"]),
            ca_file=str(files["ca.crt"]),
        )

    def test_the_same_files_keep_the_context(self, watched):
        assert watched.context(0.0) is watched.context(100.0)

    def test_new_files_make_a_new_one(self, watched, files):
        old = watched.context(0.0)
        files["ca.crt"].write_bytes(Authority("another").pem)
        assert watched.context(9.0) is old
        assert watched.context(10.0) is not old
        assert watched.problem == ""

    def test_new_files_that_are_no_good_keep_the_old_one(self, watched, files, authority):
        old = watched.context(0.0)
        files["tls.key"].write_bytes(b"half writ")
        assert watched.context(20.0) is old
        assert watched.problem.endswith("the previous content stays in use")
        cert, key = authority.issue("client")
        files["tls.crt"].write_bytes(cert)
        files["tls.key"].write_bytes(key)
        assert watched.context(40.0) is not old
        assert watched.problem == ""

    def test_links_that_point_elsewhere(self, tmp_path, authority):
        """Kubernetes swaps a link to a directory when a mounted secret changes."""
        for name, data in (("one", authority.pem), ("two", Authority("another").pem)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "ca.crt").write_bytes(data)
        link = tmp_path / "data"
        link.symlink_to("one")
        watched = source(ca_file=str(link / "ca.crt"))
        old = watched.context(0.0)
        (tmp_path / "next").symlink_to("two")
        (tmp_path / "next").replace(link)
        assert watched.context(20.0) is not old

    async def test_a_problem_is_told_once(self, files):
        seen, tls = Seen(), TLSConfig(ca_file=str(files["ca.crt"]))
        with reserved_port() as port:
            url = f"https://127.0.0.1:{port}"
            made = HTTPExtender(config(url_prefix=url, tls=tls), sink=seen, environ={})
            files["ca.crt"].write_bytes(b"rubbish")
            for _ in range(3):
                with pytest.raises(ExtenderError, match="connection refused"):
                    await made.bind(pod(), "a")
        await made.close()
        [warning] = seen.all(ExtenderWarning)
        assert warning.extender == url
        assert warning.text.startswith("tlsConfig: the certificate, key or CA cannot be used")


async def test_an_extender_over_tls(tls_server, authority):
    async with tls_server as server:
        made = HTTPExtender(
            config(url_prefix=server.url, tls=TLSConfig(ca_data=authority.pem)), environ={}
        )
        assert (await made.filter(about("a"))).kept == []
        await made.close()
    assert made.warnings == ()


async def test_a_large_body_over_tls(tls_server, authority):
    tls = TLSConfig(ca_data=authority.pem)
    pieces = [b"x" * 9_999, b","] * 100
    async with tls_server as server:
        transport = HTTPTransport(tls=TLSSource(config(url_prefix=server.url, tls=tls)))
        await transport.post(server.url, Body(pieces), headers={}, timeout_seconds=60)
        await transport.close()
    [(_, (_, _, body))] = server.requests
    assert body == b"".join(pieces)


class TestThroughAProxy:
    def transport(self, authority, proxy, url):
        tls = TLSSource(config(url_prefix=url, tls=TLSConfig(ca_data=authority.pem)))
        return HTTPTransport(
            tls=tls,
            proxy_for=lambda _url: Proxy(f"http://127.0.0.1:{proxy.port}"),
            keepalive_timeout=30,
        )

    async def test_a_tunnel(self, tls_server, authority):
        async with tls_server as server, Tunnel() as proxy:
            made = self.transport(authority, proxy, server.url)
            for _ in range(2):
                await made.post(f"{server.url}/f", Body([b"{}"]), headers={}, timeout_seconds=60)
            await made.close()
        assert proxy.lines == [f"CONNECT 127.0.0.1:{server.port} HTTP/1.1"]
        assert [line for _, (line, _, _) in server.requests] == ["POST /f HTTP/1.1"] * 2

    async def test_a_proxy_that_refuses(self, tls_server, authority):
        async with tls_server as server, Tunnel("403 Forbidden") as proxy:
            made = self.transport(authority, proxy, server.url)
            with pytest.raises(TransportError, match="proxy answered 403 Forbidden") as caught:
                await made.post(server.url, Body([b"{}"]), headers={}, timeout_seconds=60)
            await made.close()
        assert not caught.value.sent
