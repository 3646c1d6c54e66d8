"""Where connection settings and credentials come from: kubeconfig files, the cluster around us, an address, plugins."""

import base64
import json
import os
import resource
import subprocess
import sys
import textwrap

import pytest
import yaml

from app.http.proxy import Proxy
from app.kube.connection import normalize_server
from app.kube.errors import ConnectionSettingsError
from app.kube.kubeconfig import load_connection
from tests.shell.kube.servers import Authority

NOW = 1_700_000_000.0


def wall():
    return NOW


@pytest.fixture(scope="module")
def authority():
    return Authority()


@pytest.fixture
def write(tmp_path):
    """Writes a kubeconfig of one context and loads it."""

    def write_and_load(user=None, cluster=None, master="", **top):
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": "https://api.test:6443/", **(cluster or {})}}
            ],
            "users": [{"name": "u", "user": user}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
            **top,
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(config))
        return load_connection(kubeconfig=str(path), master=master, wall=wall, environ={})

    return write_and_load


def b64(data):
    return base64.b64encode(data).decode()


# ---------------------------------------------------------------- clusters


def test_the_server(write):
    connection = write({"token": "t"})
    assert connection.server == "https://api.test:6443"
    assert connection.verify
    assert (connection.ca, connection.tls_server_name, connection.proxy) == (None, None, None)


def test_master_overrides_the_server_and_keeps_the_user(write):
    assert write({"token": "t"}, master="http://localhost:8080").server == "http://localhost:8080"


def test_authorities_as_data_and_as_a_file_beside_the_kubeconfig(write, tmp_path, authority):
    assert write(None, {"certificate-authority-data": b64(authority.pem)}).ca == authority.pem
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    assert write(None, {"certificate-authority": "ca.crt"}).ca == authority.pem


def test_the_other_settings_of_a_cluster(write):
    connection = write(
        None,
        {
            "insecure-skip-tls-verify": True,
            "tls-server-name": "other.test",
            "proxy-url": "http://proxy.test:3128",
        },
    )
    assert not connection.verify
    assert connection.tls_server_name == "other.test"
    assert connection.proxy == Proxy("http://proxy.test:3128")


def test_another_context(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        textwrap.dedent("""
        clusters: [{name: a, cluster: {server: "http://a"}}, {name: b, cluster: {server: "http://b"}}]
        contexts: [{name: one, context: {cluster: a}}, {name: two, context: {cluster: b}}]
        current-context: one
        """)
    )
    assert load_connection(kubeconfig=str(path), wall=wall, environ={}).server == "http://a"
    chosen = load_connection(kubeconfig=str(path), context="two", wall=wall, environ={})
    assert chosen.server == "http://b"


def test_several_files_are_merged(tmp_path):
    (tmp_path / "one").write_text("clusters: [{name: a, cluster: {server: 'http://a'}}]\n")
    (tmp_path / "two").write_text(
        "contexts: [{name: x, context: {cluster: a}}]\ncurrent-context: x\n"
    )
    paths = f"{tmp_path}/one:{tmp_path}/two"
    assert load_connection(kubeconfig=paths, wall=wall, environ={}).server == "http://a"


def test_the_first_of_several_files_counts(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).write_text(
            f"clusters: [{{name: c, cluster: {{server: 'http://{name}'}}}}]\n"
            f"contexts: [{{name: {name}, context: {{cluster: c}}}}]\ncurrent-context: {name}\n"
        )
    paths = f"{tmp_path}/two:{tmp_path}/one"
    assert load_connection(kubeconfig=paths, wall=wall, environ={}).server == "http://two"
    chosen = load_connection(kubeconfig=paths, context="one", wall=wall, environ={})
    assert chosen.server == "http://two", "the context of the one, the cluster of the other"


# ---------------------------------------------------------------- users


@pytest.mark.parametrize(
    ("user", "expected"),
    [
        ({"token": "abc"}, "Bearer abc"),
        ({"username": "jane", "password": "pass:word"}, "Basic " + b64(b"jane:pass:word")),
        ({}, None),
        (None, None),
        ({"token": "abc", "exec": {"command": "/nowhere", "apiVersion": "v1"}}, "Bearer abc"),
    ],
    ids=["token", "basic", "empty", "null", "token before plugin"],
)
async def test_fixed_credentials(write, user, expected):
    identity = await write(user).identify()
    assert (identity.authorization, identity.valid_for) == (expected, None)


async def test_a_token_file_is_read_again_when_asked(write, tmp_path):
    (tmp_path / "token").write_text("one\n")
    connection = write({"tokenFile": "token", "token": "ignored"})
    identity = await connection.identify()
    assert (identity.authorization, identity.valid_for) == ("Bearer one", 60)
    (tmp_path / "token").write_text("two\n")
    assert (await connection.identify()).authorization == "Bearer two"


async def test_a_client_certificate_as_data(write, authority):
    pem = authority.issue("me", client=True)
    connection = write(
        {"client-certificate-data": b64(pem.certificate), "client-key-data": b64(pem.key)}
    )
    identity = await connection.identify()
    assert (identity.certificate.chain, identity.certificate.key) == (pem.certificate, pem.key)
    assert identity.valid_for is None
    assert connection.tls_context(identity.certificate) is not None


async def test_a_client_certificate_in_files_is_read_again_when_asked(write, authority, tmp_path):
    authority.issue("me", client=True).write(tmp_path, "me")
    connection = write({"client-certificate": "me.crt", "client-key": "me.key"})
    before = await connection.identify()
    assert before.valid_for == 60
    authority.issue("me", client=True).write(tmp_path, "me")
    assert (await connection.identify()).certificate != before.certificate


async def test_a_key_in_a_file_is_read_again_when_asked(write, authority, tmp_path):
    """The certificate need not be in a file, too."""
    pem = authority.issue("me", client=True)
    (tmp_path / "me.key").write_bytes(pem.key)
    connection = write({"client-certificate-data": b64(pem.certificate), "client-key": "me.key"})
    assert (await connection.identify()).valid_for == 60
    (tmp_path / "me.key").write_bytes(b"another")
    assert (await connection.identify()).certificate.key == b"another"


def test_where_authorities_are_read_again(write, authority, tmp_path):
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    in_file = write(cluster={"certificate-authority": "ca.crt"})
    assert in_file.ca_file == tmp_path / "ca.crt"
    data = {"certificate-authority-data": b64(authority.pem), "certificate-authority": "ca.crt"}
    assert write(cluster=data).ca_file is None
    assert write().ca_file is None


def test_secrets_are_not_in_representations(write, authority):
    pem = authority.issue("me", client=True)
    connection = write(
        {
            "client-certificate-data": b64(pem.certificate),
            "client-key-data": b64(pem.key),
            "token": "very secret",
        }
    )
    assert "very secret" not in repr(connection)
    assert "PRIVATE KEY" not in repr(connection)


def test_impersonation(write):
    extra = {"scope": ["x"], "a/b c": ["y"]}
    connection = write({"as": "jane", "as-groups": ["a", "b"], "as-user-extra": extra})
    assert connection.headers == (
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "a"),
        ("Impersonate-Group", "b"),
        ("Impersonate-Extra-a%2Fb%20c", "y"),
        ("Impersonate-Extra-scope", "x"),
    )


async def test_an_oidc_token_that_is_still_good(write):
    claims = b64(json.dumps({"exp": 4_000_000_000}).encode()).rstrip("=")
    token = f"head.{claims}.signature"
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": token}}}
    identity = await write(user).identify()
    assert identity.authorization == f"Bearer {token}"
    assert identity.valid_for == 60, "the provider is asked again, and renews what has expired"


# ---------------------------------------------------------------- mistakes


def write_text(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not a kubeconfig"),
        ("- a list", "not a kubeconfig"),
        ("apiVersion: v1", "no configuration has been provided"),
        ("current-context: x", "x in .*contexts list"),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: gone}}]",
            "gone in .*clusters list",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\n"
            "clusters: [{name: c, cluster: {}}]",
            "expected key server",
        ),
        (
            "current-context: x\ncontexts: [{name: x, context: {cluster: c, user: gone}}]\n"
            "clusters: [{name: c, cluster: {server: a}}]",
            "gone in .*users list",
        ),
    ],
    ids=["no yaml", "no map", "empty", "no context", "no cluster", "no server", "no user"],
)
def test_a_broken_kubeconfig_is_named(tmp_path, text, problem):
    path = write_text(tmp_path, text)
    with pytest.raises(ConnectionSettingsError, match=problem) as caught:
        load_connection(kubeconfig=path, wall=wall, environ={})
    assert path in str(caught.value)


def test_a_kubeconfig_that_is_not_there(tmp_path):
    with pytest.raises(ConnectionSettingsError, match="nowhere: no such file"):
        load_connection(kubeconfig=str(tmp_path / "nowhere"), wall=wall, environ={})


@pytest.mark.parametrize(
    ("user", "cluster", "problem"),
    [
        (
            {"client-certificate-data": b64(b"x")},
            {},
            "needs both client-certificate and client-key",
        ),
        ({"client-certificate": "gone.crt"}, {}, "unable to read client-certificate .*gone.crt"),
        ({"client-certificate-data": "?"}, {}, "client-certificate-data is not base64"),
        (
            {},
            {"insecure-skip-tls-verify": True, "certificate-authority-data": b64(b"x")},
            "root certificates file with the insecure flag is not allowed",
        ),
        ({}, {"proxy-url": "socks5://x"}, "only http and https proxies"),
        ({}, {"server": "https://"}, "host must be a URL or a host:port pair"),
        ({}, {"server": "https://user:secret@x"}, "host must not contain credentials"),
        ({"exec": {"apiVersion": "v1"}}, {}, "expected key command"),
        ({"token": "a\nb"}, {}, "characters that no header can hold"),
        ({"token": "\ud83d"}, {}, "characters that no header can hold"),
        ({"username": "\ud83d"}, {}, "the user or password is not text"),
        ({"as": "jane\r\nX: y"}, {}, r"the header Impersonate-User cannot hold 'jane\\r\\nX: y'"),
        ({"client-certificate-data": "\xe9"}, {}, "client-certificate-data is not base64"),
        ({"client-certificate": "a\x00b"}, {}, r"unable to read client-certificate '.*a\\x00b'"),
        ({}, {"server": "https://[::1"}, "host must be a URL or a host:port pair"),
        ({}, {"server": "https://x:99999"}, "host must be a URL or a host:port pair"),
        ({}, {"server": "https://x\ny"}, "host must be a URL or a host:port pair"),
    ],
)
def test_settings_that_cannot_be_used(write, user, cluster, problem):
    with pytest.raises(ConnectionSettingsError, match=problem):
        write(user, cluster)


# ---------------------------------------------------------------- plugins


def plugin(tmp_path, status, *, version="client.authentication.k8s.io/v1", exit_code=0):
    """A credential plugin that prints a status and keeps what it was told."""
    answer = {"apiVersion": version, "kind": "ExecCredential", "status": status}
    script = tmp_path / "plugin"
    script.write_text(
        "#!/bin/sh\n"
        f'printf %s "$KUBERNETES_EXEC_INFO" > {tmp_path}/told\n'
        f'printf %s "$1 $COLOR" > {tmp_path}/called\n'
        "echo complaint >&2\n"
        f"cat <<'END'\n{json.dumps(answer)}\nEND\n"
        f"exit {exit_code}\n"
    )
    script.chmod(0o755)
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "./plugin",
        "args": ["get-token"],
        "env": [{"name": "COLOR", "value": "blue"}],
    }


async def test_a_plugin_gives_a_token_with_an_end(write, tmp_path):
    settings = plugin(tmp_path, {"token": "t", "expirationTimestamp": "2023-11-14T23:13:20Z"})
    identity = await write({"exec": settings}).identify()
    assert identity.authorization == "Bearer t"
    assert identity.valid_for == 3600 - 60
    assert (tmp_path / "called").read_text() == "get-token blue"
    assert json.loads((tmp_path / "told").read_text()) == {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "spec": {"interactive": False},
    }


async def test_a_short_life_is_renewed_before_its_end(write, tmp_path):
    settings = plugin(tmp_path, {"token": "t", "expirationTimestamp": "2023-11-14T22:13:40Z"})
    assert (await write({"exec": settings}).identify()).valid_for == 18
    settings = plugin(tmp_path, {"token": "t", "expirationTimestamp": "2023-11-14T22:13:10Z"})
    assert (await write({"exec": settings}).identify()).valid_for == 1


async def test_a_plugin_gives_a_certificate(write, tmp_path, authority):
    pem = authority.issue("me", client=True)
    status = {
        "clientCertificateData": pem.certificate.decode(),
        "clientKeyData": pem.key.decode(),
    }
    connection = write({"exec": plugin(tmp_path, status)})
    identity = await connection.identify()
    assert identity.authorization is None
    assert identity.valid_for is None
    assert connection.tls_context(identity.certificate) is not None


async def test_a_plugin_that_wants_to_know_the_cluster(write, tmp_path, authority):
    settings = {**plugin(tmp_path, {"token": "t"}), "provideClusterInfo": True}
    cluster = {
        "certificate-authority-data": b64(authority.pem),
        "extensions": [
            {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "a"}}
        ],
    }
    await write({"exec": settings}, cluster).identify()
    told = json.loads((tmp_path / "told").read_text())
    assert told["spec"]["cluster"] == {
        "server": "https://api.test:6443/",
        "certificate-authority-data": b64(authority.pem),
        "config": {"audience": "a"},
    }


@pytest.mark.parametrize(
    ("status", "more", "problem"),
    [
        ({"token": "t"}, {"exit_code": 3}, "failed with exit code 3: complaint"),
        (
            {"token": "t"},
            {"version": "v9"},
            "configured to use API version .*/v1, but returned 'v9'",
        ),
        ({}, {}, "neither a token nor a client certificate"),
        (None, {}, "without status"),
        ({"clientKeyData": "k"}, {}, "only one of"),
        ({"token": 7}, {}, "printed no ExecCredential"),
        ({"token": "t", "expirationTimestamp": "soon"}, {}, "bad expirationTimestamp"),
        ({"token": "a\nb"}, {}, "characters that no header can hold"),
        ({"token": "\ud83d"}, {}, "no ExecCredential|characters that no header can hold"),
        (
            {"clientCertificateData": "\ud83d", "clientKeyData": "k"},
            {},
            "no ExecCredential|unusable",
        ),
    ],
)
async def test_a_plugin_that_does_not_work(write, tmp_path, status, more, problem):
    connection = write({"exec": plugin(tmp_path, status, **more)})
    with pytest.raises(ConnectionSettingsError, match=problem) as caught:
        await connection.identify()
    assert str(caught.value).startswith("getting credentials: exec plugin ")


async def test_a_plugin_that_is_not_installed(write):
    settings = {"apiVersion": "v1", "command": "no-such-plugin", "installHint": "Install it."}
    with pytest.raises(ConnectionSettingsError, match=r"cannot be started: .*\. Install it\."):
        await write({"exec": settings}).identify()


@pytest.mark.parametrize(
    ("more", "cluster"),
    [
        ({"args": ["a\0b"]}, {}),
        ({"env": [{"name": "A", "value": "\ud83d"}]}, {}),
        ({"provideClusterInfo": True}, {"tls-server-name": "\ud83d"}),
    ],
)
async def test_a_plugin_that_cannot_be_told(write, tmp_path, more, cluster):
    connection = write({"exec": {**plugin(tmp_path, {"token": "t"}), **more}}, cluster)
    with pytest.raises(ConnectionSettingsError, match="plugin: cannot be started: "):
        await connection.identify()


async def test_an_auth_provider_that_fails_in_its_own_way(write):
    """Its library raises what it likes."""
    user = {"auth-provider": {"name": "oidc", "config": {"id-token": "head.!.signature"}}}
    with pytest.raises(ConnectionSettingsError, match="kubeconfig: the auth provider failed: "):
        await write(user).identify()


async def test_a_plugin_that_hangs_is_ended(write, tmp_path, monkeypatch):
    settings = plugin(tmp_path, {"token": "t"})
    (tmp_path / "plugin").write_text("#!/bin/sh\nsleep 1000\necho late\n")
    connection = write({"exec": settings})
    monkeypatch.setattr("app.kube.execplugin.PATIENCE", 0.05)
    with pytest.raises(ConnectionSettingsError, match="gave no answer"):
        await connection.identify()


async def test_a_plugin_that_prints_without_end_is_ended(write, tmp_path):
    settings = plugin(tmp_path, {"token": "t"})
    (tmp_path / "plugin").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec cat /dev/zero\n")
    connection = write({"exec": settings})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ConnectionSettingsError, match="printed more than 1048576 bytes"):
        await connection.identify()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


async def test_the_end_of_a_plugins_messages_is_shown(write, tmp_path):
    settings = plugin(tmp_path, {"token": "t"})
    script = "#!/bin/sh\nhead -c 3000000 /dev/zero >&2\necho the reason >&2\nexit 3\n"
    (tmp_path / "plugin").write_text(script)
    connection = write({"exec": settings})
    with pytest.raises(ConnectionSettingsError, match=r"exit code 3: \0+the reason$"):
        await connection.identify()


# ---------------------------------------------------------------- without a kubeconfig


def service_account(tmp_path, authority):
    (tmp_path / "token").write_text("one")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    return {
        "environ": {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"},
        "service_account": tmp_path,
    }


async def test_inside_a_cluster(tmp_path, authority):
    connection = load_connection(wall=wall, **service_account(tmp_path, authority))
    assert connection.server == "https://10.0.0.1:443"
    assert connection.ca_file.read_bytes() == authority.pem
    assert (await connection.identify()).authorization == "Bearer one"
    (tmp_path / "token").write_text("two")
    identity = await connection.identify()
    assert (identity.authorization, identity.valid_for) == ("Bearer two", 60)


def test_inside_a_cluster_with_ipv6(tmp_path, authority):
    settings = service_account(tmp_path, authority)
    settings["environ"]["KUBERNETES_SERVICE_HOST"] = "fd00::1"
    assert load_connection(wall=wall, **settings).server == "https://[fd00::1]:443"


def test_nothing_at_all(tmp_path):
    with pytest.raises(
        ConnectionSettingsError,
        match="invalid configuration: no configuration has been provided, "
        "try setting KUBERNETES_MASTER environment variable, or name a kubeconfig with --kubeconfig",
    ):
        load_connection(wall=wall, environ={}, service_account=tmp_path)


def test_a_kubeconfig_of_the_environment_is_not_read_but_named(tmp_path):
    environ = {"KUBECONFIG": str(tmp_path)}
    with pytest.raises(
        ConnectionSettingsError, match=r'--kubeconfig "\$KUBECONFIG", which is not read'
    ):
        load_connection(wall=wall, environ=environ, service_account=tmp_path)


def test_a_cluster_without_a_token(tmp_path, authority):
    settings = service_account(tmp_path, authority)
    (tmp_path / "token").unlink()
    with pytest.raises(
        ConnectionSettingsError, match=r"the token file .* cannot be read: No such file"
    ):
        load_connection(wall=wall, **settings)


@pytest.mark.parametrize(
    "settings",
    [{"master": "10.0.0.1:8080"}, {"environ": {"KUBERNETES_MASTER": "http://10.0.0.1:8080/"}}],
    ids=["--master", "KUBERNETES_MASTER"],
)
async def test_an_address_is_enough(settings):
    connection = load_connection(wall=wall, **{"environ": {}, **settings})
    assert connection.server == "http://10.0.0.1:8080"
    assert (await connection.identify()).authorization is None


@pytest.mark.parametrize("address", ["", "ftp://x", "http://", "http://:80"])
def test_an_address_that_is_none(address):
    with pytest.raises(ConnectionSettingsError, match="host must be a URL"):
        normalize_server(address)


@pytest.mark.parametrize(
    "address",
    [
        "https://me:hunter2@host",
        "https://me:hunter2@host:99999",
        "https://me:hunter2@[host",
        "https://me:hun/ter2@host",
        "me:hunter2@host:port",
        "ftp://me:hunter2@host",
    ],
)
def test_an_address_with_a_password_is_refused_without_repeating_it(address):
    with pytest.raises(
        ConnectionSettingsError, match="host must not contain credentials"
    ) as caught:
        normalize_server(address)
    assert "hun" not in str(caught.value)


# ---------------------------------------------------------------- the library


def test_the_generated_models_stay_out():
    """They would cost a second of start-up and 39 MB."""
    check = (
        "import sys, app.kube.kubeconfig\n"
        "assert not [m for m in sys.modules if m.startswith('kubernetes_asyncio')]\n"
    )
    subprocess.run([sys.executable, "-c", check], check=True)
