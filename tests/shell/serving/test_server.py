"""The listener: certificates made, given, replaced and broken; plain http; ports; the end."""

import asyncio
import contextlib
import datetime as dt
import logging
import socket
import ssl

import aiohttp
import pytest
from aiohttp import web
from cryptography import x509
from prometheus_client import CollectorRegistry

from app.observe.metrics.process import ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.runtime.clock import SystemClock
from app.serving.access import Authenticator, Authorizer
from app.serving.certificates import self_signed
from app.serving.listening import listening
from app.serving.options import ServingError, ServingOptions
from app.serving.server import answering, serving
from tests.shell.kube.servers import Authority

WALL = SystemClock().wall


async def page(_request):
    return web.Response(text="ok")


ROUTES = (web.get("/healthz", page),)


@contextlib.asynccontextmanager
async def served(routes=ROUTES, **options):
    settings = ServingOptions(**{"secure_port": 0, "bind_address": "127.0.0.1", **options})
    async with serving(
        routes,
        settings,
        authenticator=Authenticator(settings, None),
        authorizer=Authorizer(settings, None),
        metrics=ServingMetrics(MetricFamilies(CollectorRegistry())),
        wall=WALL,
    ) as listening:
        yield listening


async def certificate(port, **limits):
    """The certificate that a new connection is shown, and the protocol it speaks."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    for name, limit in limits.items():
        setattr(context, name, limit)
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    connection = writer.get_extra_info("ssl_object")
    shown, version = connection.getpeercert(binary_form=True), connection.version()
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()
    return x509.load_der_x509_certificate(shown), version


def common_name(shown):
    return shown.subject.rfc4514_string()


async def get(listening, path="/healthz", **more):
    async with (
        aiohttp.ClientSession() as session,
        session.get(listening.address + path, **more) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_certificate_is_made_where_none_is_given():
    async with served() as listening:
        assert await get(listening, ssl=False) == (200, "ok")
        shown, version = await certificate(listening.port)
    assert version == "TLSv1.3"
    names = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "localhost" in names.get_values_for_type(x509.DNSName)
    assert "127.0.0.1" in {str(a) for a in names.get_values_for_type(x509.IPAddress)}
    assert shown.not_valid_after_utc - dt.datetime.now(dt.UTC) > dt.timedelta(days=300)


async def test_connections_wait_for_what_answers_them():
    options = ServingOptions(secure_port=0, bind_address="127.0.0.1")
    with listening(options, WALL) as found:
        early = asyncio.create_task(get(found, ssl=False))
        with socket.create_connection(("127.0.0.1", found.port)):
            await asyncio.sleep(0)
        assert not early.done()
        async with answering(
            found,
            ROUTES,
            options,
            authenticator=Authenticator(options, None),
            authorizer=Authorizer(options, None),
            metrics=ServingMetrics(MetricFamilies(CollectorRegistry())),
        ):
            assert await early == (200, "ok")


@pytest.mark.parametrize("option", ["tls_cert_file", "client_ca_file"])
async def test_files_that_cannot_be_used_are_found_before_anything_answers(option, tmp_path):
    files = {"tls_cert_file": str(tmp_path), "tls_private_key_file": str(tmp_path)}
    given = files if option in files else {option: str(tmp_path)}
    options = ServingOptions(secure_port=0, bind_address="127.0.0.1", **given)
    with pytest.raises(ServingError, match="unable to load"), listening(options, WALL):
        pass


async def test_nobody_vouches_for_it():
    async with served() as listening:
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await get(listening)


async def test_old_protocols_are_refused():
    async with served() as listening:
        assert (await certificate(listening.port, maximum_version=ssl.TLSVersion.TLSv1_2))[
            1
        ] == "TLSv1.2"
    async with served(tls_min_version="VersionTLS13") as listening:
        with pytest.raises(OSError):  # noqa: PT011 - in whatever words the handshake ends
            await certificate(listening.port, maximum_version=ssl.TLSVersion.TLSv1_2)


def given(directory, authority, name):
    cert, key = authority.issue(name, hosts=("127.0.0.1",)).write(directory, "serving")
    return {"tls_cert_file": str(cert), "tls_private_key_file": str(key)}


async def test_a_certificate_that_is_given(tmp_path):
    authority = Authority()
    async with served(**given(tmp_path, authority, "mine")) as listening:
        trusting = ssl.create_default_context(cadata=authority.pem.decode())
        assert await get(listening, ssl=trusting) == (200, "ok")
        assert common_name((await certificate(listening.port))[0]) == "CN=mine"


async def test_a_certificate_that_is_replaced(tmp_path):
    authority = Authority()
    async with served(**given(tmp_path, authority, "old")) as listening:
        given(tmp_path, authority, "new")
        assert common_name((await certificate(listening.port))[0]) == "CN=new"


async def test_a_certificate_that_is_spoilt_leaves_the_old_one_in_use(tmp_path, caplog):
    files = given(tmp_path, Authority(), "good")
    async with served(**files) as listening:
        with open(files["tls_cert_file"], "w") as file:
            file.write("oops")
        assert common_name((await certificate(listening.port))[0]) == "CN=good"
    assert "the previous certificate stays in use" in caplog.text
    assert files["tls_cert_file"] in caplog.text


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (
            lambda files: {**files, "tls_cert_file": "/nowhere"},
            "unable to load server certificate /nowhere",
        ),
        (
            lambda files: {**files, "tls_private_key_file": files["tls_cert_file"]},
            "unable to load server certificate",
        ),
        (lambda files: {"client_ca_file": "/nowhere"}, "unable to load client CA file /nowhere"),
    ],
)
async def test_files_that_cannot_be_used_end_the_start(tmp_path, spoil, said):
    with pytest.raises(ServingError, match=said):
        async with served(**spoil(given(tmp_path, Authority(), "mine"))):
            pass


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tls_cert_file": "x"}, "--tls-cert-file is given without --tls-private-key-file"),
        ({"tls_private_key_file": "x"}, "--tls-private-key-file is given without --tls-cert-file"),
        ({"tls_min_version": "VersionTLS10"}, "use VersionTLS12"),
    ],
)
def test_options_that_make_no_sense(options, said):
    with pytest.raises(ServingError, match=said):
        ServingOptions(**options)


async def test_a_port_that_is_taken():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(
            ServingError, match=f"failed to listen on 127.0.0.1:{port}: .*--secure-port"
        ):
            async with served(secure_port=port):
                pass


async def test_plain_http_is_announced_loudly(caplog):
    async with served(insecure_http=True) as listening:
        assert listening.address.startswith("http://127.0.0.1:")
        assert await get(listening) == (200, "ok")
    (warning,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert "INSECURE" in warning.getMessage()


async def test_answers_under_way_are_finished():
    begun, finish = asyncio.Event(), asyncio.Event()

    async def slow(_request):
        begun.set()
        await finish.wait()
        return web.Response(text="done")

    async with contextlib.AsyncExitStack() as stack:
        listening = await stack.enter_async_context(
            served([web.get("/healthz", slow)], insecure_http=True)
        )
        asking = asyncio.ensure_future(get(listening))
        await begun.wait()
        ending = asyncio.ensure_future(stack.aclose())
        await asyncio.sleep(0)
        finish.set()
        assert await asking == (200, "done")
        await ending
    with pytest.raises(aiohttp.ClientConnectionError):
        await get(listening)


async def test_the_end_is_not_held_up_for_ever():
    begun = asyncio.Event()

    async def stuck(_request):
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    async with served([web.get("/healthz", stuck)], insecure_http=True, grace=0.05) as listening:
        asking = asyncio.ensure_future(get(listening))
        await begun.wait()
    with pytest.raises(aiohttp.ClientConnectionError):
        await asking


def test_no_name_is_too_odd_for_a_certificate():
    pem = self_signed(["localhost", "::1", "10.0.0.1", "a-host.example"], WALL())
    assert pem.count(b"-----BEGIN") == 2


@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
async def test_a_port_that_both_share(address):
    shared = {"bind_address": address, "permit_port_sharing": True}
    async with served(**shared) as first:
        async with served(secure_port=first.port, **shared) as second:
            assert second.port == first.port
        with pytest.raises(ServingError, match="failed to listen"):
            async with served(secure_port=first.port, bind_address=address):
                pass


# ---------------------------------------------------------------- where it listens


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "::"])
async def test_a_wildcard_stands_for_all_addresses_of_both_families(wildcard):
    if not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    async with served(bind_address=wildcard) as listening:
        for host in ("127.0.0.1", "[::1]"):
            url = f"https://{host}:{listening.port}/healthz"
            async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
                assert answer.status == 200
        with pytest.raises(ServingError, match=f"failed to listen on {wildcard}:{listening.port}"):
            async with served(bind_address=wildcard, secure_port=listening.port):
                pass


async def test_a_wildcard_stands_for_the_addresses_there_are(monkeypatch):
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    async with served(bind_address="0.0.0.0") as listening:
        assert listening.address == f"https://0.0.0.0:{listening.port}"
        url = f"https://127.0.0.1:{listening.port}/healthz"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=False) as answer:
            assert answer.status == 200


async def test_one_address_is_just_that():
    async with served(bind_address="127.0.0.1") as listening:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.2", listening.port)
