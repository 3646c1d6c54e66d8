"""check-extender against real servers: made with the kit, and as bad as those found in the wild."""

import asyncio
import json
from collections import Counter

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from click.testing import CliRunner

from app.cli.check_extender import command
from app.extender.config import (
    ExtenderConfig,
    ExtenderConfigError,
    ManagedResource,
    TLSConfig,
    Verb,
)
from app.tools.check_extender import CheckOptions, check
from app.tools.extender_checks import Severity
from app.tools.extender_samples import made_up
from extenders.kit import Filtered, GroupAnswer, Refusal, make_app
from extenders.kit.testing import serving
from tests.shell.extender.servers import Server

VERBS = {f"{verb}_verb": str(verb) for verb in (Verb.FILTER, Verb.PRIORITIZE)}
QUICK = CheckOptions(large=20)


def good(**more):
    return make_app(
        filter=lambda request: Filtered(request.names[1:], {request.names[0]: "no"}),
        prioritize=lambda request: dict.fromkeys(request.names, 5),
        **more,
    )


def answering(*answers, limit=1 << 20):
    """Answers each request with the next of these, the last one for ever."""
    left = list(answers)

    async def handle(request):
        await request.read()
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, web.Response):
            return web.Response(status=answer.status, body=answer.body)
        return web.json_response(answer)

    app = web.Application(client_max_size=limit)
    app.router.add_post("/{verb:.*}", handle)
    return app


async def checked(app, options=QUICK, material=None, **fields):
    async with TestServer(app) as server:
        url = str(server.make_url("/")).rstrip("/")
        config = ExtenderConfig(**{"url_prefix": url, "weight": 1, **VERBS, **fields})
        resource = config.managed_resources[0].name if config.managed_resources else ""
        return await check(config, material or made_up(resource), options, environ={})


def found(report, severity):
    return [f"{f.about}: {f.text}" for f in report.findings if f.severity is severity]


@pytest.mark.parametrize("capable", [True, False])
async def test_a_good_one(capable):
    report = await checked(good(), node_cache_capable=capable)
    assert found(report, Severity.ERROR) == found(report, Severity.WARNING) == []
    form = "name" if capable else "whole node"
    assert [exchange.about for exchange in report.exchanges] == [
        f"{verb}, {count} {form}s" for verb in ("filter", "prioritize") for count in (3, 20)
    ]
    assert found(report, Severity.NOTE) == [
        "filter: understands both forms, names and whole nodes",
        "prioritize: understands both forms, names and whole nodes",
    ]


async def test_the_wrong_form():
    def whole(request):
        return Filtered([node.name for node in request.whole_nodes()])

    report = await checked(make_app(filter=whole), node_cache_capable=True, prioritize_verb="")
    assert found(report, Severity.ERROR) == [
        "filter, 3 names: answers with an Error, which fails the scheduling attempt regardless of the rest of the answer. It "
        "said: this extender needs whole nodes: set nodeCacheCapable: false for it",
        "filter: needs whole nodes, but nodeCacheCapable is true, so it gets names: set nodeCacheCapable: false",
    ]


@pytest.mark.parametrize(
    ("status", "severity", "said"),
    [
        (
            302,
            Severity.ERROR,
            "filter, 3 names: redirects to GET {}, which answers with status 405",
        ),
        (
            307,
            Severity.WARNING,
            "filter, 3 names: redirects each call to POST {}: give the address",
        ),
    ],
)
async def test_a_redirect_is_named(status, severity, said):
    async def redirect(request):
        return web.Response(status=status, headers={"Location": "/elsewhere/filter"})

    async def reply(_request):
        return web.json_response({"NodeNames": []})

    app = web.Application()
    app.add_routes([web.post("/filter", redirect), web.post("/elsewhere/filter", reply)])
    report = await checked(app, CheckOptions(large=0), node_cache_capable=True, prioritize_verb="")
    [finding, *_] = found(report, severity)
    where = next(each.redirected for each in report.exchanges).partition(" ")[2]
    assert where.startswith("http://127.0.0.1:")
    assert where.endswith("/elsewhere/filter")
    assert finding.startswith(said.format(where))
    assert ("make a GET of the POST" in finding) is (status == 302)


async def test_a_body_limit():
    report = await checked(
        good(max_body_bytes=30_000), CheckOptions(large=50), node_cache_capable=False
    )
    errors = found(report, Severity.ERROR)
    assert len(errors) == 2
    assert errors[0].startswith("filter, 50 whole nodes: answers with status 413")
    assert "limit for request bodies is too low" in errors[0]


async def test_a_body_limit_that_it_does_not_call_one():
    async def reply(request):
        short = len(await request.read()) < 30_000
        return web.json_response({"Nodes": None}) if short else web.Response(status=400)

    app = web.Application(client_max_size=2**20)
    app.router.add_post("/filter", reply)
    report = await checked(app, CheckOptions(large=20), prioritize_verb="")
    assert "filter, 20 whole nodes: answers with status 400" in found(report, Severity.ERROR)[-1]
    [note] = found(report, Severity.NOTE)
    assert "the same about 3 nodes, " in note
    assert "does it limit requests" in note


async def test_the_wrong_form_and_a_handler_that_crashes():
    """Handlers in Go panic when they look into Nodes that are null: the server hangs up."""

    async def serve(connection):
        while request := await connection.request():
            nodes = json.loads(request[2])["Nodes"]
            if nodes is None:
                return
            connection.answer(
                json.dumps({"Nodes": nodes}).encode(), Content_Type="application/json"
            )

    async with Server(serve) as server:
        config = ExtenderConfig(
            url_prefix=server.url, filter_verb="filter", node_cache_capable=True
        )
        report = await check(config, made_up(""), QUICK, environ={})
    errors = found(report, Severity.ERROR)
    assert [error.partition(": ")[0] for error in errors] == ["filter, 3 names", "filter"]
    assert errors[0].endswith("EOF (it hung up: perhaps its handler crashed)")
    assert errors[1].endswith("set nodeCacheCapable: false")


async def test_one_that_ends_at_the_sight_of_a_form_that_it_is_never_sent():
    """As programs for Node do, at the first exception that nobody catches."""

    async def serve(connection):
        while request := await connection.request():
            names = json.loads(request[2])["NodeNames"]
            if names is None:
                server.server.close()
                return
            answer = {"NodeNames": names}
            connection.answer(json.dumps(answer).encode(), Content_Type="application/json")

    async with Server(serve) as server:
        config = ExtenderConfig(
            url_prefix=server.url, filter_verb="filter", node_cache_capable=True
        )
        report = await check(config, made_up(""), QUICK, environ={})
    assert found(report, Severity.ERROR) == found(report, Severity.WARNING) == []
    assert len(report.exchanges) == 2


async def test_a_list_for_a_node_list():
    report = await checked(answering({"Nodes": [], "FailedNodes": {}}), prioritize_verb="")
    [error] = found(report, Severity.ERROR)
    assert error.startswith("filter, 3 whole nodes: Nodes is a list; it must be a NodeList")


async def test_one_that_reserves_what_it_is_asked_about():
    names = list(made_up("").nodes)
    app = answering({"NodeNames": names}, {"Error": "had been predicated!"})
    report = await checked(app, CheckOptions(large=0), node_cache_capable=True, prioritize_verb="")
    [warning] = found(report, Severity.WARNING)
    assert "fails when asked about the same pod again" in warning


async def test_nobody_there():
    config = ExtenderConfig(
        url_prefix="http://127.0.0.1:1", preempt_verb="p", bind_verb="b", **VERBS
    )
    report = await check(config, made_up(""), QUICK, environ={})
    [error] = found(report, Severity.ERROR)
    assert error.endswith("dial tcp 127.0.0.1:1: connect: connection refused")
    assert len(report.exchanges) == 1


async def test_preempt_and_bind():
    def refuse(request):
        raise Refusal("no such pod")

    app = good(preempt=lambda request: request.victims, bind=refuse)
    report = await checked(
        app, CheckOptions(large=0, bind=True), preempt_verb="preempt", bind_verb="bind"
    )
    assert found(report, Severity.ERROR) == []
    assert [e.about for e in report.exchanges[-2:]] == ["preempt, 2 nodes, whole victims", "bind"]
    assert "bind: rejected, as it should be for a pod that does not exist: no such pod" in found(
        report, Severity.NOTE
    )


async def test_bind_is_not_called_unless_asked_for():
    report = await checked(good(), CheckOptions(large=0), bind_verb="bind")
    assert "bind: not called; --bind calls it with a pod that does not exist" in found(
        report, Severity.NOTE
    )


async def test_release():
    seen = []
    report = await checked(good(release=seen.append), CheckOptions(large=0), release_verb="release")
    [placement] = seen[0].placements
    assert placement.pod_name == "check-extender"
    assert found(report, Severity.WARNING) == found(report, Severity.ERROR) == []


async def test_a_release_that_is_rejected():
    def refuse(_request):
        raise Refusal("nothing is reserved")

    report = await checked(good(release=refuse), CheckOptions(large=0), release_verb="release")
    said = (
        "release: rejected; a release of what is not reserved should succeed: nothing is reserved"
    )
    assert found(report, Severity.WARNING) == [said]


class TestGroup:
    async def test_a_good_one(self):
        def group(request):
            assert (request.name, request.min_count) == ("check-extender", 2)
            return [GroupAnswer(request.pods, scores=dict.fromkeys(request.members[0].names, 3))]

        report = await checked(good(group=group), CheckOptions(large=0), group_verb="group")
        assert found(report, Severity.WARNING) == found(report, Severity.ERROR) == []
        assert "group, 2 pods, 3 names" in [each.about for each in report.exchanges]

    @pytest.mark.parametrize(
        ("answers", "severity", "text"),
        [
            (
                lambda r: [GroupAnswer(r.pods[:1])],
                Severity.ERROR,
                "does not have pod check-extender/",
            ),
            (
                lambda r: [GroupAnswer(r.pods, ["x"])],
                Severity.ERROR,
                "names node 'x' which was not sent",
            ),
            (
                lambda r: [GroupAnswer(r.pods, [])],
                Severity.WARNING,
                "leaves out nodes without a reason",
            ),
            (
                lambda r: [GroupAnswer(r.pods, [])],
                Severity.NOTE,
                "accepts no node for check-extender,",
            ),
        ],
    )
    async def test_others(self, answers, severity, text):
        report = await checked(good(group=answers), CheckOptions(large=0), group_verb="group")
        assert any(text in each for each in found(report, severity))

    async def test_a_refusal(self):
        def refuse(_request):
            raise Refusal("no block")

        report = await checked(good(group=refuse), CheckOptions(large=0), group_verb="group")
        [said] = found(report, Severity.ERROR)
        assert said.endswith("fails the attempts of all pods of the group. It said: no block")


async def test_no_verb():
    report = await checked(good(), filter_verb="", prioritize_verb="")
    assert found(report, Severity.ERROR) == [
        ": no verb is configured, so it is never called: set filterVerb, prioritizeVerb, ..."
    ]


async def test_the_pod_asks_for_what_the_extender_manages():
    seen = []

    def note(request):
        seen.append(request.pod.asks_for("example.com/gpu"))
        return Filtered(request.names)

    managed = (ManagedResource("example.com/gpu"),)
    await checked(make_app(filter=note), prioritize_verb="", managed_resources=managed)
    assert set(seen) == {True}


async def test_what_the_scheduler_would_warn_of_or_refuse():
    tls = TLSConfig(insecure=True)
    report = await check(
        ExtenderConfig(url_prefix="https://127.0.0.1:1", enable_https=True, tls=tls, **VERBS),
        made_up(""),
        QUICK,
        environ={},
    )
    [warning] = found(report, Severity.WARNING)
    assert "tlsConfig.insecure is set" in warning
    with pytest.raises(ExtenderConfigError, match="urlPrefix must be"):
        await check(ExtenderConfig(url_prefix="ftp://x", **VERBS), made_up(""), QUICK, environ={})


# ---------------------------------------------------------------- the command


def run(*arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


FLAGS = ("--filter-verb", "filter", "--prioritize-verb", "prioritize", "--large", "5")


class TestCommand:
    def test_a_good_one(self):
        with serving(good()) as url:
            result = run("--url", url, *FLAGS)
        assert result.exit_code == 0
        first, *rest = result.output.splitlines()
        assert first == f"extender {url} (nodeCacheCapable: false)"
        assert rest[-1] == "  no errors, no warnings"
        assert "note    filter: understands both forms, names and whole nodes" in result.output

    def test_a_bad_one_of_a_configuration(self, tmp_path):
        with serving(answering([])) as bad, serving(good()) as fine:
            extenders = [
                {"urlPrefix": fine, "filterVerb": "filter"},
                {"urlPrefix": bad, "filterVerb": "filter", "nodeCacheCapable": True},
            ]
            file = tmp_path / "config.yaml"
            file.write_text(
                json.dumps(
                    {
                        "apiVersion": "kubescheduler.config.k8s.io/v1",
                        "kind": "KubeSchedulerConfiguration",
                        "extenders": extenders,
                    }
                )
            )
            result = run("--config", file, "--large", "0")
            as_json = run("--config", file, "--large", "0", "-o", "json")
        assert result.exit_code == as_json.exit_code == 1
        one, two = result.output.split("\n\n")
        assert "no errors" in one
        assert "cannot unmarshal array into Go value of type v1.ExtenderFilterResult" in two
        assert [entry["errors"] for entry in json.loads(as_json.output)] == [0, 1]

    def test_with_manifests(self, tmp_path):
        pods, seen = tmp_path / "pod.yaml", []
        pods.write_text("kind: Pod\nmetadata: {name: mine}\nspec: {containers: []}\n")
        nodes = tmp_path / "nodes.yaml"
        nodes.write_text("kind: List\nitems:\n- {kind: Node, metadata: {name: n1}}\n")

        def note(request):
            seen.append((request.pod.name, *request.names))
            return Filtered(request.names)

        with serving(make_app(filter=note)) as url:
            result = run("--url", url, *FLAGS[:2], "--large", 0, "--pod", pods, "--nodes", nodes)
        assert (result.exit_code, set(seen)) == (0, {("mine", "n1")})

    @pytest.mark.parametrize(
        ("arguments", "text"),
        [
            ((), "give either --config FILE, or --url URL with the verbs"),
            (("--url", "http://x"), "name the verbs to call"),
            (("--config", "/nonexistent.yaml"), "nonexistent.yaml"),
            (("--config", "x", "--url", "y"), "give either --config FILE"),
            (("--url", "x", "--filter-verb", "f"), "urlPrefix must be an http:// or https:// URL"),
            (("--url", "http://x", "--filter-verb", "f", "--http-timeout", "1"), "missing unit"),
            (("--url", "http://x", "--filter-verb", "f", "--pod", "/no.yaml"), "/no.yaml: No such"),
            (("--url", "http://x", "--filter-verb", "f", "--ca-file", "/no.pem"), "/no.pem"),
        ],
    )
    def test_bad_arguments(self, arguments, text):
        result = run(*arguments)
        assert result.exit_code != 0
        assert text in result.output
        assert "Traceback" not in result.output
        assert result.exception is None or isinstance(result.exception, SystemExit)

    def test_a_file_without_what_is_looked_for(self, tmp_path):
        file = tmp_path / "x.yaml"
        file.write_text("kind: Service\nmetadata: {name: s}\n")
        result = run("--url", "http://x", "--filter-verb", "f", "--nodes", file)
        assert f"{file}: there is no Node in it" in result.output


@pytest.mark.parametrize("output", ["text", "json"])
def test_what_it_says_cannot_spoil_the_report(output):
    """Lone surrogates cannot be printed, and control characters tell a terminal what to do."""
    app = web.Application()

    async def answer(_request):
        text = rb'{"\ud800":1,"\u001b]0;x\u0007":2,"NodeNames":[]}'
        return web.Response(body=text, content_type="application/json")

    app.router.add_post("/{verb:.*}", answer)
    with serving(app) as url:
        flags = ("--url", url, "--filter-verb", "filter", "--node-cache-capable")
        run = CliRunner().invoke(command, [*flags, "--large", "0", "--output", output])
    shown = run.output
    if output == "json":
        shown = "\n".join(finding["text"] for finding in json.loads(run.output)[0]["findings"])
    assert r'the key "\ud800" is not read' in shown
    assert r'the key "\x1b]0;x\x07" is not read' in shown
    assert not {"\x1b", "\x07"} & set(run.output)


async def test_calls_side_by_side():
    """Of prioritize, which does not reserve."""
    calls, together = Counter(), asyncio.Barrier(16)

    async def handle(request):
        verb = request.path.rpartition("/")[2]
        asked = await request.json()
        calls[verb] += 1
        names = asked["NodeNames"] or [n["metadata"]["name"] for n in asked["Nodes"]["items"]]
        if verb == "filter":
            return web.json_response({"Nodes": asked["Nodes"], "NodeNames": asked["NodeNames"]})
        if 3 <= calls[verb] <= 18:
            await together.wait()
            return web.Response(status=503, text="busy")
        return web.json_response([{"Host": name, "Score": 100} for name in names])

    app = web.Application()
    app.router.add_post("/{verb:.*}", handle)
    report = await checked(app, CheckOptions(large=0), node_cache_capable=True)
    assert calls == {"filter": 3, "prioritize": 19}
    about = "prioritize, 3 names, 16 calls side by side: 16 of them failed, one call alone did not"
    assert any(each.startswith(about) for each in found(report, Severity.WARNING))
    notes = found(report, Severity.NOTE)
    assert any("with weight 1 adds 1000 to a node" in each for each in notes)


@pytest.mark.parametrize("count", [0, 4])
async def test_a_filter_that_reserves_is_not_called_side_by_side(count):
    calls = []

    def one(request):
        calls.append(request)
        return Filtered(request.names[:1], dict.fromkeys(request.names[1:], "not chosen"))

    options = CheckOptions(large=0, side_by_side=count)
    report = await checked(make_app(filter=one), options, prioritize_verb="")
    assert len(calls) == 3  # two for the same pod, one in the other form
    skipped = [each for each in found(report, Severity.NOTE) if "not called side by side" in each]
    assert bool(skipped) is bool(count)
