"""docs/configuration.md against the program: its example is what comes out, its fields, defaults, files and flags
exist.
"""

import fnmatch
import re
from pathlib import Path

import msgspec
import yaml
from click.testing import CliRunner

from app.cli import main
from app.cli.flags import REMOVED, WITHOUT_EFFECT
from app.cli.run import command
from app.model.gates import GATES
from app.model.gotext import Duration
from app.settings.args import LabelSelector
from app.settings.base import Model
from app.settings.extension import AiokubeSchedulerConfiguration

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docs" / "configuration.md").read_text()

MISTAKEN = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
extenders:
- urlPrefix: http://127.0.0.1:8888
  filterVerb: filter
  prioritizeVerb: prioritize
  weight: 0
  nodeCacheCapable: true
  enableHttps: false
  managedResources:
  - ignoredByScheduler: true
    name: opaqueFooResource
"""


def section(title):
    return TEXT.split(f"\n## {title}\n")[1].split("\n## ")[0]


def test_the_mistakes_are_told_as_shown(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scheduler.yaml").write_text(MISTAKEN)
    shown = section("How it is read").split("$ aiokube-scheduler check-config scheduler.yaml\n")[1]
    result = CliRunner().invoke(main, ["check-config", "scheduler.yaml"])
    assert result.exit_code == 1
    assert result.output == shown.split("```")[0]


def fields(model, prefix=""):
    """(path, default) of everything that can be set in a document."""
    for field in msgspec.structs.fields(model):
        inner, name = field.type, field.encode_name
        path = f"{prefix}{name}"
        if name == "extenders":
            (inner, _) = inner.__args__
            path += "[]"
        if inner is LabelSelector or name == "profiles":
            yield path, "all"
        elif isinstance(inner, type) and issubclass(inner, Model):
            yield from fields(inner, f"{path}.")
        elif name not in {"apiVersion", "kind"}:
            yield path, field.default


def test_the_second_document_s_fields_and_defaults():
    rows = re.findall(
        r"^\| `([\w.\[\]]+)` \|([^|]*)\|", section("The second document"), re.MULTILINE
    )
    told = {path: value.strip() for path, value in rows}
    real = dict(fields(AiokubeSchedulerConfiguration))
    assert told.keys() == real.keys()
    for path, default in real.items():
        if not told[path]:
            assert default in {None, ""}, path
            continue
        found = yaml.safe_load(told[path])
        assert (Duration.parse(found) if isinstance(default, Duration) else found) == default, path


def test_every_file_of_config_is_in_the_table():
    named = set(re.findall(r"^\| \[([\w.-]+)\]\(\.\./config/\1\)", TEXT, re.MULTILINE))
    assert named == {path.name for path in (ROOT / "config").glob("*.yaml")}


def test_the_gates_are_those_of_the_specification():
    text = (ROOT / "docs" / "spec" / "README.md").read_text()
    rows = re.findall(r"^\| ([A-Z]\w+(?:, .*?)?) \| (on|off)[^|]*\|", text, re.MULTILINE)
    told = {"on": set(), "off": set()}
    for names, default in rows:
        told[default] |= set(re.findall(r"\b[A-Z]\w*[a-z]\w*[A-Z]\w*\b", names))
    known = {name: gate.versions["1.36"] for name, gate in GATES.items() if "1.36" in gate.versions}
    on = {name for name, gate in known.items() if gate.default}
    # Done by the API server.
    assert told == {"on": on - {"PodSchedulingReadiness"}, "off": known.keys() - on}


KNOWN = {"--help"} | {o for parameter in command.params for o in parameter.opts}


def test_its_flags_exist():
    named = set(re.findall(r"`(--[a-z0-9-]+)[ `]", TEXT))
    assert {"--port", "--http2-max-streams-per-connection"} <= named
    assert named <= KNOWN | REMOVED.keys()


def test_every_flag_is_in_the_table_with_what_it_does():
    rows = re.findall(r"^\| (`-[^|]+)\| (.*) \|$", section("Flags"), re.MULTILINE)
    told = [(pattern, does) for flags, does in rows for pattern in re.findall(r"`(-[^`]+)`", flags)]
    for flag in KNOWN:
        (does,) = {does for pattern, does in told if fnmatch.fnmatchcase(flag, pattern)}
        assert (flag in WITHOUT_EFFECT) == does.startswith("nothing"), flag
