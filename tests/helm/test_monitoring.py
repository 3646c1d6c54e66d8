"""The alerts and dashboards of the chart, and those of kubernetes-mixin: each expression finds data in what a busy
scheduler shows.

Names and labels are looked up in one scrape. Where Prometheus is installed it evaluates the expressions too.
"""

import contextlib
import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from app.tools.subprocesses import reserved_port
from extenders.kit import Filtered, Refusal, make_app
from extenders.kit.testing import serving
from tests.helm.chart import CHART, Helm
from tests.whole.harness import Cluster, Process, Schedulers, pod, running_cluster, wait_for

pytestmark = pytest.mark.whole

JOB: Final = "aiokube-scheduler"
ALERTS: Final = CHART / "files" / "alerts.yaml"
DASHBOARDS: Final = sorted((CHART / "files" / "dashboards").glob("*.json"))
#: What Grafana would put in their places.
VARIABLES: Final = {
    "$job": JOB,
    "$cluster": "",
    "$instance": ".*",
    "$extender": ".*",
    "$__rate_interval": "1m",
}
_STRING: Final = r'"(?:[^"\\]|\\.)*"'
_SELECTOR: Final = re.compile(rf"\b([a-z]\w*_\w+)(?:\{{((?:[^}}\"]|{_STRING})*)\}})?(?![\w(])")
_MATCHER: Final = re.compile(rf"(\w+)(=~|!~|!=|=)({_STRING})")
_COMPARISON: Final = re.compile(r"(==|!=|>=|<=|>|<)(?= ?[\d.])")
#: They count what a scheduler does not do while all is well, and have no series before it happens.
RARE: Final = {"aiokube_scheduler_credential_failures_total"}
#: Only extenders in shadow have it: no alert about the extenders on which pods depend is for them.
IN_SHADOW: Final = "aiokube_scheduler_extender_shadow_not_asked_total"


class Selector(NamedTuple):
    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    """Label, operator, value."""

    def fits(self, labels: Mapping[str, str]) -> bool:
        for label, operator, value in self.matchers:
            found = labels.get(label, "")
            same = bool(re.fullmatch(value, found)) if "~" in operator else value == found
            if same == ("!" in operator):
                return False
        return True


def alerts() -> dict[str, str]:
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    return {rule["alert"]: rule["expr"].replace("JOB", JOB) for rule in rules}


def panels() -> dict[str, str]:
    found = {}
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", ()):
                name = f"{file.stem}: {panel['title']} {target['refId']}"
                assert name not in found
                found[name] = with_variables(target["expr"])
    return found


def with_variables(text: str) -> str:
    for name, value in VARIABLES.items():
        text = text.replace(name, value)
    assert "$" not in text, text
    return text


#: Alerts of a shadow; the last one is no alert of a scheduler.
SHADOW_ALERTS: Final = (
    "AiokubeSchedulerCredentialsAreRefused",
    "AiokubeSchedulerEventLoopIsBlocked",
    "AiokubeSchedulerShadowIsBehind",
)
ALL: Final = {**alerts(), **panels()}
SHADOW: Final = {
    name: each for name, each in ALL.items() if name.startswith("shadow:") or name in SHADOW_ALERTS
}
EXPRESSIONS: Final = {
    name: each for name, each in ALL.items() if name not in SHADOW or name in SHADOW_ALERTS[:-1]
}


#: kubernetes-mixin's expressions, which are about this job.
MIXIN: Final = Path(__file__).parents[1] / "manifests" / "kubernetes-mixin"
MIXIN_JOB: Final = "kube-scheduler"
#: Lines of its panels that stay empty: for good, and while the API server is well (docs/operations.md).
MIXIN_EMPTY: Final = {
    "Scheduling Rate: volume",
    "Scheduling latency 99th Quantile: volume",
    "Goroutines: value",
}
MIXIN_RARE: Final = {f"Kube API Request Rate: {code}xx" for code in (3, 4, 5)}


def mixin() -> dict[str, str]:
    """What dashboard, recording rules and alerts ask."""
    dashboard = yaml.safe_load((MIXIN / "dashboard.yaml").read_text())
    found = {
        f"{panel}: {line}": e for panel, lines in dashboard.items() for line, e in lines.items()
    }
    for group in yaml.safe_load((MIXIN / "rules.yaml").read_text())["groups"]:
        for rule in group["rules"]:
            quantile = rule.get("labels", {}).get("quantile", "")
            found[f"{rule.get('record') or rule['alert']} {quantile}"] = rule["expr"]
    return {name: with_variables(expression) for name, expression in found.items()}


def selectors(expression: str) -> list[Selector]:
    plain = re.sub(r"\b(?:by|without|on|ignoring) ?\([^)]*\)", "", expression)
    return [
        Selector(
            found[1], tuple((a, b, json.loads(c)) for a, b, c in _MATCHER.findall(found[2] or ""))
        )
        for found in _SELECTOR.finditer(plain)
    ]


def test_selectors_are_found() -> None:
    text = 'sum by (le, a_b) (rate(x_y_bucket{a=~"b|}",c="d"}[5m])) > 0 or up_time / foo_bar{} or vector(0)'
    a, b, c = selectors(text)
    assert a == ("x_y_bucket", (("a", "=~", "b|}"), ("c", "=", "d")))
    assert (b, c) == (("up_time", ()), ("foo_bar", ()))
    assert a.fits({"a": "b", "c": "d"})
    assert not a.fits({"a": "bb", "c": "d"})


# ---------------------------------------------------------------- a busy scheduler


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a scheduler serves metrics that has bound, refused and preempted pods and called good and bad extenders."""
    folder = tmp_path_factory.mktemp("monitoring")
    good = make_app(filter=some, prioritize=lambda request: dict.fromkeys(request.names, 1))
    with (
        running_cluster(folder, "--nodes=3") as cluster,
        serving(good) as first,
        serving(make_app(filter=refuse)) as second,
        reserved_port() as port,
    ):
        options = {"filterVerb": "filter", "nodeCacheCapable": True}
        extenders = [
            {"urlPrefix": first, **options, "prioritizeVerb": "prioritize", "weight": 1},
            {"urlPrefix": second, **options, "managedResources": [{"name": "example.com/bad"}]},
            {
                "urlPrefix": f"{second}/ignored",
                **options,
                "ignorable": True,
                "managedResources": [{"name": "example.com/ignored"}],
            },
        ]
        for extender in extenders[1:]:
            extender["managedResources"][0]["ignoredByScheduler"] = True
        tried = {"urlPrefix": f"{second}/tried", **options}
        with scheduler(cluster, folder, port, tried, extenders=extenders) as url:
            keep_busy(cluster)
            yield url


def some(request: Any) -> Filtered:
    """Two nodes; for one pod none, so that it waits because of the extender."""
    names = [*request.names]
    kept = [] if request.pod.metadata.name == "unwanted" else names[:2]
    return Filtered(kept, dict.fromkeys(names[len(kept) :], "not this one"))


def refuse(_request: Any) -> Filtered:
    raise Refusal("out of order")


@contextlib.contextmanager
def scheduler(
    cluster: Cluster, folder: Path, port: int, tried: dict[str, Any], **settings: Any
) -> Iterator[str]:
    """``tried``: an extender in shadow."""
    settings["extenders"].append(tried)
    first = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.kubeconfig)},
        **settings,
    }
    file = folder / "scheduler.yaml"
    dry = {"filterVerb": tried["filterVerb"]}
    second = {
        "apiVersion": "aiokube-scheduler.io/v1alpha1",
        "kind": "AiokubeSchedulerConfiguration",
        "extenders": [{"urlPrefix": tried["urlPrefix"], "shadow": True, "dryRun": dry}],
    }
    file.write_text(yaml.safe_dump_all([first, second]))
    arguments = ["app", "run", f"--config={file}", f"--secure-port={port}"]
    arguments += ["--bind-address=127.0.0.1", "--insecure-http"]
    process = Process([*arguments, "--authorization-always-allow-paths=/*"], folder / "log")
    try:
        wait_for("the lease", lambda: "Successfully acquired lease" in process.output())
        yield f"127.0.0.1:{port}"
        assert process.stop() == 0, process.output()
    finally:
        process.kill()


def keep_busy(cluster: Cluster) -> None:
    """Bound pods, one that does not fit, one that evicts another, and two with extenders that fail."""
    create = lambda body: cluster.call("POST", "/api/v1/namespaces/default/pods", body)  # noqa: E731
    names = {"fits": "100m", "large": "20", "larger": "20", "largest": "20", "huge": "1000"}
    for name, cpu in names.items():
        create(pod(name, cpu=cpu))
    for name in ("bad", "ignored"):
        body = pod(name)
        body["spec"]["containers"][0]["resources"]["requests"][f"example.com/{name}"] = "1"
        create(body)
    wait_for("bound pods", lambda: bound(cluster) >= {"fits", "large", "ignored"})
    create(pod("important", cpu="20", priorityClassName="system-cluster-critical"))
    wait_for("a preemption", lambda: "important" in bound(cluster))
    create(pod("unwanted"))
    wait_for("failures", lambda: failed(cluster) >= {"huge", "unwanted"})


def failed(cluster: Cluster) -> set[str]:
    return {each["regarding"]["name"] for each in cluster.events("FailedScheduling")}


def bound(cluster: Cluster) -> set[str]:
    return {name for name, each in cluster.pods().items() if each["spec"].get("nodeName")}


def scraped(address: str, job: str = JOB) -> dict[str, list[dict[str, str]]]:
    """Series by the name of their samples: labels, with those that Prometheus adds."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=60) as answer:
        text = answer.read().decode()
    found: dict[str, list[dict[str, str]]] = {}
    added = {"job": job, "instance": address}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, []).append({**sample.labels, **added})
    return found


def without_data(
    address: str, expressions: Mapping[str, str], job: str = JOB
) -> set[tuple[Any, ...]]:
    """The selectors that match no series of a scrape."""
    found = scraped(address, job)
    return {
        (name, selector.metric, selector.matchers)
        for name, expression in expressions.items()
        for selector in selectors(expression)
        if selector.metric not in RARE
        and not any(map(selector.fits, found.get(selector.metric, ())))
    }


def test_every_expression_finds_data(address: str) -> None:
    assert without_data(address, EXPRESSIONS) == set()
    assert all(selectors(expression) for expression in ALL.values())
    assert len(EXPRESSIONS) + len(SHADOW) == len(ALL) + 2
    for name in ("AiokubeSchedulerExtenderIsDown", "AiokubeSchedulerExtenderFails"):
        assert f'unless on (extender) {IN_SHADOW}{{job="{JOB}"}}' in alerts()[name]


def test_mixin_finds_data_but_for_the_panels_that_are_named(address: str) -> None:
    found = mixin()
    assert len(found) == 18 + 9 + 2
    empty = {name for name, *_ in without_data(address, found, MIXIN_JOB)}
    assert MIXIN_EMPTY <= empty <= MIXIN_EMPTY | MIXIN_RARE
    assert all(selectors(e) for e in found.values() if "up{" not in e)


@pytest.fixture(scope="module")
def shadow_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where a shadow serves metrics that has judged decisions of a scheduler that may use more nodes."""
    folder = tmp_path_factory.mktemp("shadow")
    plugins = [{"name": "NodeAffinity", "args": {"addedAffinity": ONE_NODE}}]
    configuration = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": "default-scheduler", "pluginConfig": plugins}],
    }
    (folder / "shadow.yaml").write_text(yaml.safe_dump(configuration))
    with running_cluster(folder, "--nodes=3") as cluster, reserved_port() as port:
        arguments = ["app", "shadow", f"--config={folder / 'shadow.yaml'}", "--insecure-http"]
        arguments += [f"--kubeconfig={cluster.kubeconfig}", f"--secure-port={port}"]
        arguments += ["--bind-address=127.0.0.1", "--authorization-always-allow-paths=/*"]
        process = Process([*arguments, "--summary-interval=0.2"], folder / "shadow.log")
        schedulers = Schedulers(cluster, folder)
        try:
            wait_for("the shadow", lambda: "nothing is written" in process.output())
            schedulers.start(leaderElection={"leaderElect": False})
            cluster.create_pods(12, cpu="1")
            wait_for("verdicts", lambda: "Of 12 decisions" in process.output())
            yield f"127.0.0.1:{port}"
            assert process.stop() == 0, process.output()
        finally:
            process.kill()
            schedulers.end()


ONE_NODE: Final = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-0"]}]}
        ]
    }
}


def test_every_expression_for_a_shadow_finds_data(shadow_address: str) -> None:
    assert without_data(shadow_address, SHADOW) == set()


# ---------------------------------------------------------------- Prometheus itself


def prometheus(tool: str) -> str:
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"there is no {tool} here (Debian's package prometheus has it)")
    return path


def test_promtool_accepts_the_rules_of_the_chart(helm: Helm, tmp_path: Path) -> None:
    rendered = helm.render({"prometheusRule.enabled": True, "prometheusRule.job": "other"})
    rule = rendered.one("PrometheusRule")
    own = [name for name in alerts() if name != SHADOW_ALERTS[-1]]
    assert [each["alert"] for each in rule["spec"]["groups"][0]["rules"]] == own
    for each in rule["spec"]["groups"][0]["rules"]:
        assert each["expr"] == alerts()[each["alert"]].replace(f'"{JOB}"', '"other"')
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump(rule["spec"]))
    command = [prometheus("promtool"), "check", "rules", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(own)} rules found" in done.stdout


def test_without_election_nothing_is_said_about_leaders(helm: Helm) -> None:
    given = {"prometheusRule.enabled": True, "leaderElection.enabled": False, "replicaCount": 1}
    (group,) = helm.render(given).one("PrometheusRule")["spec"]["groups"]
    left_out = alerts().keys() - {rule["alert"] for rule in group["rules"]}
    assert left_out == {"AiokubeSchedulerHasNoLeader", SHADOW_ALERTS[-1]}


def test_a_shadow_has_the_alerts_and_the_dashboard_that_apply(helm: Helm) -> None:
    given = {"mode": "shadow", "prometheusRule.enabled": True, "dashboards.enabled": True}
    rendered = helm.render(given)
    (group,) = rendered.one("PrometheusRule")["spec"]["groups"]
    assert [rule["alert"] for rule in group["rules"]] == list(SHADOW_ALERTS)
    files = {name for each in rendered.all("ConfigMap") for name in each["data"]}
    assert {name for name in files if name.endswith(".json")} == {"aiokube-shadow.json"}


@pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)
def test_panels_do_not_overlap(file: Path) -> None:
    taken: set[tuple[int, int]] = set()
    shown = json.loads(file.read_text())["panels"]
    assert len({panel["id"] for panel in shown}) == len(shown)
    for panel in shown:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        cells = {(x, y) for x in columns for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert max(columns) < 24, panel["title"]
        taken |= cells


def test_dashboards_are_in_config_maps(helm: Helm) -> None:
    found = helm.render({"dashboards.enabled": True}).all("ConfigMap")
    contents = [text for each in found for text in each["data"].values()]
    shown = [json.loads(text) for text in contents if text.startswith("{")]
    assert shown == [json.loads(file.read_text()) for file in DASHBOARDS if file.stem != "shadow"]


def test_promtool_accepts_the_rules_of_mixin() -> None:
    subprocess.run([prometheus("promtool"), "check", "rules", MIXIN / "rules.yaml"], check=True)


@pytest.mark.parametrize("mode", ["scheduler", "shadow", "mixin"])
def test_prometheus_evaluates_every_expression(
    mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    address = request.getfixturevalue("shadow_address" if mode == "shadow" else "address")
    expressions = {"scheduler": EXPRESSIONS, "shadow": SHADOW, "mixin": mixin()}[mode]
    job = MIXIN_JOB if mode == "mixin" else JOB
    program = prometheus("prometheus")
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "scrape_configs": [{"job_name": job, "static_configs": [{"targets": [address]}]}],
        "rule_files": [str(MIXIN / "rules.yaml")] if mode == "mixin" else [],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    with reserved_port() as port, (tmp_path / "log").open("w") as log:
        flags = {
            "config.file": tmp_path / "prometheus.yml",
            "storage.tsdb.path": tmp_path / "data",
            "web.listen-address": f"127.0.0.1:{port}",
        }
        command = [program, *(f"--{name}={value}" for name, value in flags.items())]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            ask = f"http://127.0.0.1:{port}/api/v1/query?query="
            wait_for(
                "scrapes", lambda: value(ask, f'count_over_time(up{{job="{job}"}}[1m]) > 3') != []
            )
            if mode == "mixin":
                recorded = (
                    'count(count by (__name__, quantile) ({__name__=~"cluster_quantile:.*"}))'
                )
                wait_for(
                    "rules", lambda: [each["value"][1] for each in value(ask, recorded)] == ["9"]
                )
            empty = [
                name
                for name, expression in expressions.items()
                if not RARE & {each.metric for each in selectors(expression)}
                and not value(ask, as_value(expression))
            ]
        finally:
            process.kill()
            process.wait()
    if mode == "mixin":
        assert MIXIN_EMPTY <= set(empty) <= MIXIN_EMPTY | MIXIN_RARE
    else:
        assert empty == []


def as_value(expression: str) -> str:
    """An alert as something that has a value while it does not fire."""
    expression = re.sub(r"^absent\((.*)\)$", r"\1", expression)
    return _COMPARISON.sub(r"\1 bool", expression)


def value(ask: str, expression: str) -> list[Any]:
    """The series that an expression has; none while Prometheus starts. Raises HTTPError for what it cannot read."""
    try:
        with urllib.request.urlopen(ask + urllib.parse.quote(expression), timeout=60) as answer:
            result: list[Any] = json.load(answer)["data"]["result"]
            return result
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 503:
                raise
    except OSError:
        pass
    return []
