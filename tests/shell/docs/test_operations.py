"""docs/operations.md against the program: metrics, alerts and paths that it names are there, and all that are there it
names.
"""

import fnmatch
import json
import re
import shlex
from pathlib import Path

import click
import jsonschema
import yaml
from prometheus_client import generate_latest

from app.cli import main
from app.extender.memory import AnswerMemory
from app.kube.credentials import CredentialFailures
from app.observe.metrics import gauges
from app.runtime.limits import Limits
from app.runtime.shortages import Shortages
from tests.helm.kubernetes_schema import mistakes
from tests.shell.scheduler.world import CONFIG, running

GUIDE_PATH = Path(__file__).parents[3] / "docs" / "operations.md"
GUIDE = GUIDE_PATH.read_text()


def section(title):
    return GUIDE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def documented():
    """name -> labels, from the tables."""
    rows = re.findall(r"^\| `([a-z_]+)` \| ([a-z_, ]*) ?\|", section("Metrics"), re.MULTILINE)
    return {
        name: {label for label in labels.replace(" ", "").split(",") if label}
        for name, labels in rows
    }


def real(world):
    families = world.telemetry.families
    world.scheduler.register(families)
    gauges.register_election(families, lambda: None)
    gauges.register_events(families, list)
    gauges.register_resources(families, Limits(1, 1), AnswerMemory(0), Shortages(), {})
    gauges.register_credentials(families, CredentialFailures())
    gauges.register_build(families, "1")
    gauges.register_features(families, world.scheduler.features)
    assert world.scheduler.whatif  # made with the endpoints, with its figures
    found = {}
    for metric in families._families.values():
        labels = metric.label_names if hasattr(metric, "label_names") else metric._labels
        found[metric.name] = set(labels)
    return found


async def test_all_metrics_are_described_with_their_labels():
    async with running() as world:
        assert documented() == real(world)


def recorded():
    """name -> (type, labels), as kube-scheduler has them."""
    lines = (Path(__file__).parent / "kube_scheduler_metrics.txt").read_text().splitlines()[1:]
    words = (line.split() for line in lines)
    return {name: (kind, set(labels.split(",")) - {"-"}) for name, kind, labels in words}


async def test_what_kube_scheduler_shows_is_here_or_said_to_be_missing():
    async with running() as world:
        ours = real(world)
        types = {
            f"{family.name}_total" if family.type == "counter" else family.name: family.type
            for family in world.telemetry.registry.collect()
        }
    process = generate_latest().decode()
    rows = re.findall(
        r"^\| (`[^|]+`) \|", section("Metrics").split("\n| missing |")[1], re.MULTILINE
    )
    missing = [pattern for row in rows for pattern in re.findall(r"`([^`]+)`", row)]
    theirs = recorded()
    for name, (kind, labels) in theirs.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in missing):
            assert name not in ours, name
        elif name.startswith("process_"):
            assert f"# TYPE {name} {kind}\n" in process
        else:
            assert (types[name], ours[name]) == (kind, labels), name
    assert len(theirs) > 80


def test_the_values_for_dashboards_are_values_of_the_chart():
    chart = GUIDE_PATH.parents[1] / "helm" / "aiokube-scheduler"
    values = yaml.safe_load(section("Metrics").split("```yaml\n")[1].split("```")[0])
    jsonschema.validate(values, json.loads((chart / "values.schema.json").read_text()))


def test_alerts_are_those_of_the_chart():
    """Their expressions are tested by tests/helm/test_monitoring.py."""
    chart = GUIDE_PATH.parents[1] / "helm" / "aiokube-scheduler"
    rules = yaml.safe_load((chart / "files" / "alerts.yaml").read_text())["groups"][0]["rules"]
    told = re.findall(r"^\| `(\w+)` \|", section("Alerts"), re.MULTILINE)
    assert told == [rule["alert"] for rule in rules]


REQUEUE = (
    "---\napiVersion: aiokube-scheduler.io/v1alpha1\nkind: AiokubeSchedulerConfiguration\n"
    "requeueEndpoint: {enabled: true}\n"
)


async def test_the_paths_are_those_that_are_served():
    async with running(config=CONFIG + REQUEUE) as world:
        endpoints = world.endpoints()
        served = {route.path for route in endpoints.routes}
    rows = re.findall(r"^\| (`[^|]+`[^|]*)\|", section("Endpoints"), re.MULTILINE)
    told = {path for row in rows for path in re.findall(r"(/[a-zA-Z/{}-]+)", row)}
    told = {path.replace("NAMESPACE/POD", "{namespace}/{name}") for path in told}
    told = {path.replace("nodes/NODE", "nodes/{name}") for path in told}
    assert {path for path in served if path.count("/") == 1 or path.startswith("/debug")} <= told
    assert told <= served


def test_symptoms_speak_of_metrics_that_exist():
    described = set(documented())
    mentioned = set(
        re.findall(
            r"`((?:aiokube_scheduler|scheduler|leader_election|rest_client)_[a-z_]+)[`{]", GUIDE
        )
    )
    assert mentioned <= described


def commands(program):
    """The guide's commands of a program, as words."""
    text = "\n".join(re.findall(r"^```console\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL))
    lines = [line.removeprefix("$ ") for line in text.replace("\\\n", " ").splitlines()]
    return [shlex.split(line) for line in lines if line.startswith(f"{program} ")]


def test_commands_are_understood():
    found = commands("aiokube-scheduler")
    assert len(found) == 4
    for _, name, *arguments in found:
        main.get_command(click.Context(main), name).make_context(name, arguments)


def test_who_may_look_may_look_everywhere():
    """As the ClusterRole of the guide has it; its name is that of the commands."""
    role = yaml.safe_load(section("Who may see what").split("```yaml\n")[1].split("```")[0])
    assert mistakes(role) == []
    (bound,) = [words for words in commands("kubectl") if "clusterrolebinding" in words]
    assert f"--clusterrole={role['metadata']['name']}" in bound
    (rule,) = role["rules"]
    everyone = {"/healthz", "/livez", "/readyz"}
    paths = set(re.findall(r"^\| `(/[a-z/]+)`", section("Endpoints"), re.MULTILINE)) - everyone
    assert {"/metrics", "/debug/queue", "/statusz"} <= paths
    urls = rule["nonResourceURLs"]
    assert {p for p in paths if not any(fnmatch.fnmatchcase(p, url) for url in urls)} == set()
    assert rule["verbs"] == ["get"]
