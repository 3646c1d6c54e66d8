"""The explain command against a server: credentials, trust, and words for what goes wrong."""

import asyncio
import contextlib
import dataclasses
import io
import json
import socket
import threading
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner
from prometheus_client import CollectorRegistry
from rich.console import Console

from app.cli import explain as explain_command
from app.cli.explain import command, split_name
from app.cli.explain_view import view
from app.kube.errors import ConnectionSettingsError
from app.kube.leaders import LABELS, Leader
from app.kube.reviews import User
from app.observe.explain import Explanation, Feasibility, Leadership, Waiting
from app.observe.histories import (
    AttemptRecord,
    CallBodies,
    ExtenderCall,
    Rejection,
    ShadowCall,
)
from app.observe.metrics.process import ServingMetrics
from app.observe.metrics.series import MetricFamilies
from app.runtime.clock import SystemClock
from app.serving.access import Authenticator, Authorizer
from app.serving.certificates import self_signed
from app.serving.options import ServingOptions
from app.serving.server import serving
from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.resources.kinds import BY_RESOURCE
from app.sim.resources.reviews import ADMIN_TOKEN
from app.tools import scheduler_client as module
from app.tools.scheduler_client import NotAnswered, SchedulerTarget, story_of
from app.tools.subprocesses import reserved_port
from tests.shell.kube.servers import Authority
from tests.shell.serving.reviewers import Reviews

EXPLANATION = Explanation(
    "shop",
    "cart-0",
    "uid-1",
    "default-scheduler",
    Leadership(leading=True),
    "unschedulable",
    waiting=Waiting(3, 1_700_000_000.0, 0.0, ("NodeResourcesFit",), "", ""),
    now=Feasibility(
        0,
        2,
        "0/2 nodes are available: 2 Insufficient cpu.",
        (Rejection("NodeResourcesFit", "Unschedulable", ("Insufficient cpu",), 2),),
    ),
)
PATH = "/debug/pods/shop/cart-0"
RIGHT = ("alice", "get", PATH)


async def story(_request):
    return web.Response(body=msgspec.json.encode(EXPLANATION), content_type="application/json")


@contextlib.asynccontextmanager
async def listening(reviews, **options):
    """A scheduler, as what listens."""
    settings = ServingOptions(secure_port=0, bind_address="127.0.0.1", **options)
    async with serving(
        [web.get("/debug/pods/{namespace}/{name}", story)],
        settings,
        authenticator=Authenticator(settings, reviews),
        authorizer=Authorizer(settings, reviews),
        metrics=ServingMetrics(MetricFamilies(CollectorRegistry())),
        wall=SystemClock().wall,
    ) as found:
        yield found


@contextlib.asynccontextmanager
async def scheduler(reviews, **options):
    async with listening(reviews, **options) as found:
        yield found.address


async def explain(server, **target):
    return json.loads(await story_of(SchedulerTarget(server, **target), "shop", "cart-0"))


async def test_with_a_token_and_blind_trust():
    async with scheduler(Reviews(RIGHT)) as server:
        told = await explain(server, token="alices", insecure_skip_tls_verify=True)
    assert told["place"] == "unschedulable"


async def test_with_the_authority_and_a_kubeconfig(tmp_path):
    authority, ca, kubeconfig = Authority(), tmp_path / "ca.crt", tmp_path / "config"
    ca.write_bytes(authority.pem)
    cert, key = authority.issue("s", hosts=("127.0.0.1",)).write(tmp_path, "s")
    users = [
        {"name": "alice", "user": {"token": "alices"}},
        {"name": "bob", "user": {"token": "bobs"}},
    ]
    contexts = [{"name": u["name"], "context": {"cluster": "c", "user": u["name"]}} for u in users]
    cluster = {"name": "c", "cluster": {"server": "https://elsewhere:6443"}}
    config = {"users": users, "contexts": contexts, "clusters": [cluster]}
    kubeconfig.write_text(json.dumps(config | {"current-context": "bob"}))
    files = {"tls_cert_file": str(cert), "tls_private_key_file": str(key)}
    async with scheduler(Reviews(RIGHT), **files) as server:
        target = {"kubeconfig": str(kubeconfig), "certificate_authority": ca}
        assert (await explain(server, **target, context="alice"))["name"] == "cart-0"
        with pytest.raises(NotAnswered, match="does not accept these credentials"):
            await explain(server, **target)


async def test_a_certificate_that_is_not_trusted():
    async with scheduler(Reviews(RIGHT)) as server:
        with pytest.raises(NotAnswered, match="--insecure-skip-tls-verify"):
            await explain(server, token="alices")


async def test_without_the_right():
    async with scheduler(Reviews()) as server:
        said = r'"system:anonymous" cannot get .*client certificates.*--token.*nonResourceURL'
        with pytest.raises(NotAnswered, match=said):
            await explain(server, insecure_skip_tls_verify=True)
        with pytest.raises(NotAnswered, match=r'"alice" cannot get [^.]*\. It takes the right'):
            await explain(server, token="alices", insecure_skip_tls_verify=True)


async def test_nobody_there():
    with reserved_port() as port, pytest.raises(NotAnswered, match="name the scheduler"):
        await explain(f"http://127.0.0.1:{port}")


async def test_plain_http_on_this_machine():
    async with scheduler(Reviews(RIGHT), insecure_http=True) as server:
        assert (await explain(server, token="alices"))["uid"] == "uid-1"


async def test_secrets_are_not_sent_in_the_open():
    with pytest.raises(NotAnswered, match="use https"):
        await explain("http://scheduler.example:10259", token="alices")


@pytest.mark.parametrize(
    "target",
    [{"server": "ftp://x"}, {"certificate_authority": "/nowhere"}, {"kubeconfig": "/nowhere"}],
)
async def test_settings_that_cannot_be(target):
    target = {k: Path(v) if k == "certificate_authority" else v for k, v in target.items()}
    with pytest.raises(ConnectionSettingsError):
        await story_of(SchedulerTarget(**target), "shop", "cart-0")


@pytest.mark.parametrize(
    ("pod", "expected"), [("shop/cart-0", ("shop", "cart-0")), ("cart-0", ("default", "cart-0"))]
)
def test_names(pod, expected):
    assert split_name(pod, "default") == expected


# ---------------------------------------------------------------- found by the lease


@contextlib.asynccontextmanager
async def cluster_led_by(tmp_path, *servers, certificate="", namespace="kube-system"):
    """The kubeconfig of a cluster with a lease for each of these schedulers on this machine."""
    options = ClusterOptions(kubeconfig_out=tmp_path / "kubeconfig")
    async with EmbeddedCluster(options) as cluster:
        for number, server in enumerate(servers):
            identity = f"{socket.gethostname()}_{number}"
            leader = Leader(identity, server, certificate, ("default-scheduler",))
            metadata = {
                "name": f"l{number}",
                "namespace": namespace,
                "labels": LABELS,
                "annotations": leader.annotations(),
            }
            cluster.apply(
                BY_RESOURCE["leases.coordination.k8s.io"],
                {"metadata": metadata, "spec": {"holderIdentity": identity}},
            )
        yield str(tmp_path / "kubeconfig")


ADMIN = ("kubernetes-admin", "get", PATH)


class Admins(Reviews):
    """Knows the token of the embedded cluster's kubeconfig."""

    async def who_has(self, token):
        return User("kubernetes-admin") if token == ADMIN_TOKEN else await super().who_has(token)


async def test_the_leader_is_found_and_its_own_certificate_trusted(tmp_path):
    async with listening(Admins(ADMIN)) as found:
        led = cluster_led_by(tmp_path, found.address, certificate=found.certificate)
        async with led as kubeconfig:
            assert (await explain("", kubeconfig=kubeconfig))["name"] == "cart-0"


async def test_a_certificate_of_somebody_else_is_not_trusted(tmp_path):
    other = self_signed(["127.0.0.1"], SystemClock().wall()).decode()
    async with (
        listening(Admins(ADMIN)) as found,
        cluster_led_by(tmp_path, found.address, certificate=other) as kubeconfig,
    ):
        with pytest.raises(NotAnswered, match="is not trusted"):
            await explain("", kubeconfig=kubeconfig)


async def test_a_certificate_that_an_authority_has_signed_is_trusted_as_it_is(tmp_path):
    cert, key = Authority().issue("s", hosts=("elsewhere",)).write(tmp_path, "s")
    files = {"tls_cert_file": str(cert), "tls_private_key_file": str(key)}
    async with listening(Admins(ADMIN), **files) as found:
        led = cluster_led_by(tmp_path, found.address, certificate=found.certificate)
        async with led as kubeconfig:
            assert (await explain("", kubeconfig=kubeconfig))["name"] == "cart-0"


async def test_nobody_leads_and_nobody_is_here(tmp_path, monkeypatch):
    with reserved_port() as port:
        monkeypatch.setattr(module, "DEFAULT_SERVER", f"https://localhost:{port}")
        async with cluster_led_by(tmp_path) as kubeconfig:
            with pytest.raises(NotAnswered) as caught:
                await explain("", kubeconfig=kubeconfig)
    tried, then = str(caught.value).split("\n")
    assert (
        tried
        == "no lease in namespace kube-system (--lease-namespace) is that of an aiokube-scheduler"
    )
    assert then.startswith(f"https://localhost:{port} cannot be asked")
    assert "Connect call failed" in then
    assert "SSLContext" not in then
    assert then.endswith("name the scheduler with --server")


# ---------------------------------------------------------------- the command itself


@pytest.fixture
def server():
    """A scheduler that lets everybody see everything, on a thread of its own."""
    ready, stop, address = threading.Event(), asyncio.Event(), []
    loops = []

    async def main():
        loops.append(asyncio.get_running_loop())
        allowed = Reviews(("system:anonymous", "get", PATH))
        async with scheduler(allowed, insecure_http=True) as where:
            address.append(where)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    assert ready.wait(60)
    yield address[0]
    loops[0].call_soon_threadsafe(stop.set)
    thread.join(60)


def invoke(*arguments):
    return CliRunner().invoke(command, [*arguments, "--kubeconfig="])


def test_for_people(server):
    result = invoke("shop/cart-0", f"--server={server}")
    assert result.exit_code == 0, result.output
    assert "Pod shop/cart-0" in result.output
    assert "Insufficient cpu" in result.output


def test_for_programs(server):
    result = invoke("cart-0", "-n", "shop", f"--server={server}", "-o", "json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.output)["now"]["evaluated"] == 2


def test_errors_are_one_sentence_and_status_1(server):
    result = invoke("shop/other", f"--server={server}")
    assert result.exit_code == 1
    assert result.output.startswith("Error: forbidden")


@pytest.mark.parametrize("pod", ["a/b/c", "/x", "x/", ""])
def test_names_that_are_none(pod):
    result = invoke(pod)
    assert result.exit_code == 2
    assert "is not NAMESPACE/POD" in result.output


async def test_a_lease_of_another_namespace_gets_no_credentials(tmp_path, monkeypatch):
    """Whoever may write leases in any namespace could have them."""
    asked = []

    async def note(request):
        asked.append(request)
        return web.json_response({})

    application = web.Application()
    application.router.add_get("/{path:.*}", note)
    async with (
        TestServer(application) as server,
        cluster_led_by(tmp_path, str(server.make_url("/")), namespace="theirs") as kubeconfig,
    ):
        target = SchedulerTarget(kubeconfig=kubeconfig, token=ADMIN_TOKEN)
        with reserved_port() as port:
            monkeypatch.setattr(module, "DEFAULT_SERVER", f"https://localhost:{port}")
            with pytest.raises(NotAnswered, match="no lease in namespace kube-system"):
                await story_of(target, "shop", "cart-0")
        assert not asked
        theirs = dataclasses.replace(target, lease_namespace="theirs")
        assert await story_of(theirs, "shop", "cart-0") == b"{}"
    assert [request.headers["Authorization"] for request in asked] == [f"Bearer {ADMIN_TOKEN}"]


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b'{"name":' * 20_000])
@pytest.mark.parametrize("output", ["text", "json"])
def test_an_answer_that_is_no_explanation(monkeypatch, answer, output):
    async def story(*_arguments):
        return answer

    monkeypatch.setattr("app.cli.explain.story_of", story)
    run = invoke("shop/cart-0", "--output", output)
    assert (run.exit_code, run.exception.__class__) == (1, SystemExit)
    assert "Error: what answers is no aiokube-scheduler of this version: " in run.output


def test_a_terminal_is_not_told_what_to_do(monkeypatch):
    """Reasons of extenders may have any characters."""
    told = msgspec.structs.replace(EXPLANATION, nominated_node="\x1b]0;title\x07")

    async def story(*_arguments):
        return msgspec.json.encode(told)

    monkeypatch.setattr("app.cli.explain.story_of", story)
    shown = invoke("shop/cart-0").output
    assert "\\x1b]0;title\\x07" in shown
    assert not {"\x1b", "\x07"} & set(shown)
    as_json = invoke("shop/cart-0", "--output", "json").output
    assert json.loads(as_json)["nominatedNode"] == "\x1b]0;title\x07"
    assert not {"\x1b", "\x07"} & set(as_json)


async def test_watching_tells_what_has_changed(monkeypatch, capsys):
    """And that it is not up to date."""
    later = msgspec.structs.replace(EXPLANATION, place="bound", node="n7", waiting=None, now=None)

    async def stories(_target, _namespace, _name, _pause):
        for found in (EXPLANATION, EXPLANATION, NotAnswered("no\x1b leader"), later, later):
            yield found if isinstance(found, NotAnswered) else msgspec.json.encode(found)

    monkeypatch.setattr(explain_command, "stories_of", stories)
    await explain_command._watch(SchedulerTarget(), "shop", "cart-0", "text")
    printed = capsys.readouterr()
    assert printed.out.count("Pod shop/cart-0") == 2
    assert printed.out.index("waits for a cluster event") < printed.out.index("bound to n7")
    assert printed.err == "Not up to date: no\\x1b leader\n"


async def test_a_terminal_shows_that_a_story_is_old(monkeypatch):
    shown = []

    async def stories(_target, _namespace, _name, _pause):
        yield msgspec.json.encode(EXPLANATION)
        yield NotAnswered("no leader")
        yield msgspec.json.encode(EXPLANATION)

    class Screen(contextlib.nullcontext):
        def __init__(self, **_options):
            super().__init__(self)

        def update(self, what, *, refresh):
            text = io.StringIO()
            Console(file=text, width=120).print(what)
            shown.append(text.getvalue())

    monkeypatch.setattr(explain_command, "stories_of", stories)
    monkeypatch.setattr(explain_command, "Live", Screen)
    monkeypatch.setattr(explain_command, "_in_place", lambda _output: True)
    await explain_command._watch(SchedulerTarget(), "shop", "cart-0", "text")
    assert ["Not up to date: no leader" in each for each in shown] == [False, True, False]
    assert all("Pod shop/cart-0" in each for each in shown)


async def test_watching_keeps_its_connection_and_finds_the_scheduler_again():
    connections, answers = set(), [200, 200, 403, 200, 500, 404]

    async def tell(request):
        connections.add(request.transport)
        status = answers.pop(0) if answers else 200
        if status == 200:
            return await story(request)
        return web.json_response({"message": "not now"}, status=status)

    @contextlib.asynccontextmanager
    async def started(port):
        application = web.Application()
        application.router.add_get(PATH, tell)
        async with TestServer(application, port=port) as server:
            yield server

    async def following(stories):
        found = await asyncio.wait_for(anext(stories), 30)
        return "told" if isinstance(found, bytes) else type(found).__name__

    with reserved_port() as port:
        target = SchedulerTarget(f"http://127.0.0.1:{port}")
        stories = module.stories_of(target, "shop", "cart-0", 0.0)
        with pytest.raises(NotAnswered, match="cannot be asked"):
            await anext(stories)
        stories = module.stories_of(target, "shop", "cart-0", 0.0)
        async with started(port):
            told = [await following(stories) for _ in range(7)]
            assert told[:3] == ["told", "told", "NotAnswered"]
            assert told[3:] == ["told", "NotAnswered", "UnknownObject", "told"]
            assert len(connections) == 1
        assert await following(stories) == "Unreachable"
        async with started(port):
            while await following(stories) != "told":
                pass
        await stories.aclose()


def with_calls(*bodies):
    calls = [
        ExtenderCall("http://x", "filter", "success", 0.1, 30, 20, bodies=each) for each in bodies
    ]
    attempt = AttemptRecord(7, "default-scheduler", 1.0, 1.0, calls=calls)
    return msgspec.json.encode(msgspec.structs.replace(EXPLANATION, attempts=[attempt]))


@pytest.mark.parametrize(
    ("bodies", "flags", "expected", "unexpected"),
    [
        ((CallBodies('{"Pod":1}', "no\x1bne"),), ["--bodies"], ['{"Pod":1}', "no\\x1bne", "30 B", "attempt 7, filter of http://x"], "No bodies"),
        ((CallBodies('{"Pod":1}', "none"),), [], ["Calls to extenders"], '{"Pod":1}'),
        ((None,), ["--bodies"], ["No bodies of these calls are kept", "extenderBodies.calls"], "Sent in"),
        ((None, CallBodies("a", "b")), ["--bodies"], ["Sent in"], "No bodies"),
        ((), ["--bodies"], ["Pod shop/cart-0"], "No bodies"),
    ],
)  # fmt: skip
def test_bodies_of_calls(monkeypatch, bodies, flags, expected, unexpected):
    async def story(*_arguments):
        return with_calls(*bodies)

    monkeypatch.setattr("app.cli.explain.story_of", story)
    shown = invoke("shop/cart-0", *flags).output
    assert all(each in shown for each in expected), shown
    assert unexpected not in shown


def test_answers_of_extenders_in_shadow(monkeypatch):
    shadows = (
        ShadowCall("http://next", "filter", "chosen_node_refused", "too \x1bwarm", 5, 3),
        ShadowCall("http://next", "prioritize", "same"),
    )
    attempt = AttemptRecord(7, "default-scheduler", 1.0, 1.0, shadows=shadows)

    async def story(*_arguments):
        return msgspec.json.encode(msgspec.structs.replace(EXPLANATION, attempts=[attempt]))

    monkeypatch.setattr("app.cli.explain.story_of", story)
    shown = invoke("shop/cart-0").output
    for text in ("Extenders in shadow", "chosen_node_refused", "3 of 5", "too \\x1bwarm", "same"):
        assert text in shown


def test_the_rules_of_a_newer_version_are_named():
    def told(rules):
        screen = Console(width=100, record=True, file=io.StringIO())
        screen.print(view(msgspec.structs.replace(EXPLANATION, rules=rules), 0.0, 100))
        return "those of kube-scheduler" in screen.export_text()

    assert [told(rules) for rules in ("", "1.36", "1.37")] == [False, False, True]
