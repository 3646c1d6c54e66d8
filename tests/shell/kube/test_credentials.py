"""Credentials that change while the client runs: renewed in time, once for many, and kept where there are no new
ones.
"""

import asyncio
import errno

import pytest

from app.http.files import LOOK_INTERVAL
from app.http.tls import ClientCertificate
from app.kube.client import KubeClient
from app.kube.connection import FILE_REFRESH, Connection, Identity, token_file_source
from app.kube.credentials import RENEWAL_PAUSE, RENEWAL_RETRY, CredentialFailures, Credentials
from app.kube.errors import ConnectionFailed, ConnectionSettingsError
from tests.shell.clock import leap
from tests.shell.kube.servers import Authority, serving

pytestmark = pytest.mark.looptime


class Issuer:
    """Hands out a new token each time it is asked, or fails."""

    def __init__(self, valid_for):
        self.valid_for = valid_for
        self.asked = 0
        self.broken = False

    async def __call__(self):
        self.asked += 1
        if self.broken:
            raise ConnectionSettingsError("the plugin is away")
        return Identity(f"Bearer {self.asked}", valid_for=self.valid_for)


async def test_credentials_are_renewed_in_time(caplog):
    issuer = Issuer(valid_for=60)
    credentials = Credentials(Connection("http://x", issuer))
    await credentials.load()

    async def token():
        return (await credentials.current()).headers("", "")["Authorization"]

    assert await token() == "Bearer 1"
    await asyncio.sleep(59)
    assert await token() == "Bearer 1"
    await asyncio.sleep(1)
    assert await token() == "Bearer 2"
    issuer.broken = True
    await asyncio.sleep(60)
    assert await token() == "Bearer 2", "the old ones stay while there are no new ones"
    assert await token() == "Bearer 2"
    assert issuer.asked == 3, "and are not asked for with every request"
    assert "the plugin is away" in caplog.text
    issuer.broken = False
    await asyncio.sleep(RENEWAL_RETRY)
    assert await token() == "Bearer 4"


async def test_many_401s_renew_once():
    issuer = Issuer(valid_for=None)
    credentials = Credentials(Connection("http://x", issuer))
    await credentials.load()
    await asyncio.sleep(5)
    refused = (await credentials.current()).number
    assert await asyncio.gather(*(credentials.renew(refused) for _ in range(9))) == [True] * 9
    await asyncio.sleep(5)
    assert await credentials.renew(refused), "a late answer to an old token"
    assert issuer.asked == 2


async def test_a_source_without_better_credentials_is_not_asked_with_every_401():
    asked = 0

    async def same_again():
        nonlocal asked
        asked += 1
        return Identity("Bearer 1")

    credentials = Credentials(Connection("http://x", same_again))
    await credentials.load()
    refused = (await credentials.current()).number
    await asyncio.sleep(RENEWAL_PAUSE)
    assert not await credentials.renew(refused)
    assert not await credentials.renew(refused)
    assert asked == 2
    await asyncio.sleep(RENEWAL_PAUSE)
    assert not await credentials.renew(refused)
    assert asked == 3


@pytest.fixture(scope="module")
def authorities():
    return Authority(), Authority()


async def test_authorities_are_read_again_when_they_change(authorities, tmp_path, caplog):
    """Those of a cluster are replaced while pods run, in the mounted volume."""
    caplog.set_level("INFO")
    old, new = authorities
    file = tmp_path / "ca.crt"
    file.write_bytes(old.pem)
    credentials = Credentials(Connection("https://x", ca_file=file))
    await credentials.load()

    def trusted():
        return credentials.tls.get_ca_certs(binary_form=True)

    first = trusted()
    (tmp_path / "draft").write_bytes(b"# zertifik\xc3\xa4t\n" + new.pem)
    (tmp_path / "draft").replace(file)
    number = (await credentials.current()).number
    assert len(first) == 1
    assert trusted() != first
    assert (await credentials.current()).number == number, "the identity is the same"
    for content in (b"rubbish", b""):
        second, before = trusted(), credentials.tls
        file.write_bytes(content)
        await asyncio.sleep(LOOK_INTERVAL)
        await credentials.current()
        assert (trusted(), credentials.tls) == (second, before)
        assert "Certificate authorities cannot be used, keeping the old ones" in caplog.text
    file.unlink()
    await asyncio.sleep(LOOK_INTERVAL)
    await credentials.current()
    assert trusted() == second
    file.write_bytes(old.pem)
    await asyncio.sleep(LOOK_INTERVAL)
    await credentials.current()
    assert trusted() == first


async def test_connections_are_made_under_the_new_authorities(authorities, tmp_path):
    old, new = authorities
    file = tmp_path / "ca.crt"
    file.write_bytes(old.pem)
    shown = new.server_tls(tmp_path, new.issue("server", hosts=("127.0.0.1",)))
    async with serving(answer_200, shown) as server:
        connection = Connection(server.url, ca_file=file)
        async with KubeClient(connection, agent="test/1") as client:
            with pytest.raises(ConnectionFailed, match=r"(?i)certificate verify failed"):
                await client.request("GET", "/x")
            file.write_bytes(new.pem)
            leap(LOOK_INTERVAL)
            assert (await client.request("GET", "/x")).status == 200


async def answer_200(request):
    await request.answer(200)


async def test_a_certificate_that_does_not_go_with_its_key_is_tried_again_soon(authorities):
    """The two files of a pair are not replaced in one go."""
    authority, _ = authorities
    one, other = (authority.issue(name, client=True) for name in ("one", "other"))
    pair = [one.certificate, one.key]

    async def identify():
        return Identity(certificate=ClientCertificate(*pair), valid_for=60)

    credentials = Credentials(Connection("https://x", identify, verify=False))
    await credentials.load()
    first = credentials.tls
    pair[0] = other.certificate
    await asyncio.sleep(60)
    await credentials.current()
    assert credentials.tls is first
    pair[1] = other.key
    await asyncio.sleep(RENEWAL_RETRY)
    await credentials.current()
    assert credentials.tls is not first


@pytest.mark.parametrize("token", ["a\nb", "a\r\nX: y", "a\x00b", "\ud83d"])
async def test_a_bad_token_keeps_the_old_one(token, caplog):
    """From whatever source: it is refused before it reaches a request."""
    tokens = iter(("good", token, token, "better"))

    async def identify():
        return Identity(f"Bearer {next(tokens)}", valid_for=60)

    failures = CredentialFailures()
    credentials = Credentials(Connection("http://x", identify), failures)
    await credentials.load()
    number = (await credentials.current()).number
    await asyncio.sleep(60)
    assert (await credentials.current()).headers("", "")["Authorization"] == "Bearer good"
    assert not await credentials.renew(number)
    assert failures.not_renewed == 2
    assert caplog.text.count("characters that no header can hold") == 2
    await asyncio.sleep(RENEWAL_RETRY)
    assert (await credentials.current()).headers("", "")["Authorization"] == "Bearer better"


async def test_a_certificate_that_cannot_be_loaded_keeps_the_old_one(authorities, monkeypatch):
    """OpenSSL reads keys from files, for which there may be no descriptor."""
    pem = authorities[0].issue("me", client=True)

    async def identify():
        return Identity(certificate=ClientCertificate(pem.certificate, next(keys)), valid_for=60)

    keys = iter((pem.key, pem.key + b"\n"))
    credentials = Credentials(Connection("https://x", identify, verify=False))
    await credentials.load()
    first = credentials.tls

    def no_descriptors(*_arguments, **_options):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("app.http.tls.os.memfd_create", no_descriptors)
    monkeypatch.setattr("tempfile.NamedTemporaryFile", no_descriptors)
    await asyncio.sleep(60)
    await credentials.current()
    assert credentials.tls is first


@pytest.mark.parametrize("content", [b"\xff\xfe", b"caf\xc3\xa9", b"a\nb", b"a\x00b", b"  ", b""])
async def test_a_token_file_that_holds_no_token(content, tmp_path, caplog):
    file = tmp_path / "token"
    file.write_bytes(b"good\n")
    credentials = Credentials(Connection("http://x", token_file_source(file)))
    await credentials.load()
    file.write_bytes(content)
    await asyncio.sleep(FILE_REFRESH)
    assert (await credentials.current()).headers("", "")["Authorization"] == "Bearer good"
    assert f"token file {file}" in caplog.text
    with pytest.raises(ConnectionSettingsError):
        await Credentials(Connection("http://x", token_file_source(file))).load()
