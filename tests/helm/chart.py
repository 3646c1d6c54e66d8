"""The chart as Helm renders it."""

import dataclasses
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
CHART: Final = ROOT / "helm" / "aiokube-scheduler"
EXAMPLES: Final = sorted((CHART / "examples").glob("*.yaml"))
VALUES: Final = sorted((Path(__file__).parent / "values").glob("*.yaml"))
NAMESPACE: Final = "kube-system"
RELEASE: Final = "aiokube-scheduler"
#: What the chart says it needs, and what its facts are of.
OLDEST, NEWEST = "1.30.0", "1.36.2"
_TIMEOUT: Final = 250.0
#: Ten times as fast, where PyYAML has been built with it.
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Object = dict[str, Any]


class RenderError(Exception):
    """What Helm says about values that it refuses."""


@dataclasses.dataclass(frozen=True)
class Rendered:
    """What would be applied. ``text`` is what Helm printed."""

    text: str

    @cached_property
    def objects(self) -> list[Object]:
        """All objects, hooks among them."""
        return [found for found in yaml.load_all(self.text, _LOADER) if found]

    def all(self, kind: str) -> list[Object]:
        """The objects of one kind."""
        return [found for found in self.objects if found["kind"] == kind]

    def one(self, kind: str) -> Object:
        """The only object of its kind."""
        (found,) = self.all(kind)
        return found

    @property
    def deployment(self) -> Object:
        """The Deployment's spec."""
        spec: Object = self.one("Deployment")["spec"]
        return spec

    @property
    def pod(self) -> Object:
        """The spec of the scheduler's pods."""
        spec: Object = self.deployment["template"]["spec"]
        return spec

    @property
    def container(self) -> Object:
        """The scheduler's container."""
        return named(self.pod["containers"], "scheduler")

    @property
    def config_text(self) -> str:
        """The configuration file."""
        texts = [each["data"].get("scheduler.yaml") for each in self.all("ConfigMap")]
        (text,) = filter(None, texts)
        return str(text)

    @property
    def config(self) -> Object:
        """The first document of the configuration file."""
        document: Object = next(iter(yaml.safe_load_all(self.config_text)))
        return document

    @property
    def extension(self) -> Object | None:
        """The second document, None if there is none."""
        _, *rest = yaml.safe_load_all(self.config_text)
        return rest[0] if rest else None

    def pod_specs(self) -> Iterator[tuple[str, Object]]:
        """(whose it is, spec) of everything that becomes a pod."""
        yield "Deployment", self.pod
        for pod in self.all("Pod"):
            yield pod["metadata"]["name"], pod["spec"]


def named(objects: Sequence[Object], name: str) -> Object:
    """The one of this name in a list of containers, volumes, ports..."""
    (found,) = [each for each in objects if each["name"] == name]
    return found


def nested(values: Mapping[str, Any]) -> Object:
    """``{"image.tag": "1"}`` -> ``{"image": {"tag": "1"}}``."""
    result: Object = {}
    for path, value in values.items():
        *parents, last = path.split(".")
        place = result
        for parent in parents:
            place = place.setdefault(parent, {})
        place[last] = value
    return result


class Helm:
    """The Helm client, away from whatever configuration its user has.

    What has been rendered is kept in ``home``, which processes that test side by side may share.
    """

    def __init__(self, program: Path, home: Path) -> None:
        self._program: Final = program
        self._home: Final = home
        quick = {"GOGC": "off", "GOMAXPROCS": "1"}
        self._environment: Final = {"PATH": os.environ["PATH"], "HOME": str(home), **quick}
        self._known: Final[dict[str, Rendered]] = {}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One command, whatever comes of it."""
        return subprocess.run(
            [str(self._program), *arguments],
            env=self._environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT,
            check=False,
        )

    def render(
        self,
        values: Mapping[str, Any] | None = None,
        /,
        *options: str,
        release: str = RELEASE,
        kube_version: str = NEWEST,
        chart: Path = CHART,
    ) -> Rendered:
        """``helm template`` with these values (dotted paths). Raises RenderError."""
        given = json.dumps(nested(values or {}))
        question = json.dumps([given, options, release, kube_version, str(chart)])
        key = hashlib.sha256(question.encode()).hexdigest()
        if key not in self._known:
            arguments = ("--kube-version", kube_version, "--values", "-", *options)
            text = self._kept(key) or self._template(release, chart, arguments, given)
            self._keep(key, text)
            self._known[key] = Rendered(text)
        return self._known[key]

    def _template(self, release: str, chart: Path, arguments: Sequence[str], values: str) -> str:
        command = ("template", release, str(chart), "--namespace", NAMESPACE, *arguments)
        done = self.run(*command, stdin=values)
        if done.returncode:
            raise RenderError(done.stderr)
        return done.stdout

    def _kept(self, key: str) -> str:
        try:
            return (self._home / key).read_text()
        except FileNotFoundError:
            return ""

    def _keep(self, key: str, text: str) -> None:
        unfinished = self._home / f"{key}.{os.getpid()}"
        unfinished.write_text(text)
        unfinished.rename(self._home / key)


def find_program() -> Path | None:
    """$HELM, or the client that ``make helm`` has built, or else the one on the PATH."""
    built = ROOT / ".venv" / "bin" / "helm"
    found = os.environ.get("HELM") or (built if built.exists() else shutil.which("helm"))
    return Path(found) if found else None
