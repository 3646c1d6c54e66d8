"""Configuration files: both documents, from the schema of the models, so that no field is forgotten; and what is no
YAML.
"""

from random import Random
from typing import Any

import msgspec

from app.settings.check import Checked, as_object, as_text
from app.settings.extension import AiokubeSchedulerConfiguration
from app.settings.load import load
from app.settings.mistakes import model_of
from app.settings.models import KubeSchedulerConfiguration
from app.settings.problems import ConfigurationError
from tests.fuzz.driver import Figures
from tests.fuzz.shapes import Field, Leaf, List, Map, Number, Obj, Shape, junk, nested
from tests.fuzz.world import Violation

_ODD = (
    "",
    " ",
    "\0",
    "*",
    "x" * 10_000,
    "\u00fc",
    "-1s",
    "1h1",
    "9" * 30 + "h",
    "../..",
    "http://",
    "https://[::",
    "=",
    2**70,
)
_TEXT = Leaf(("", "a", "x"), _ODD)
_PLUGIN = Leaf(
    (
        "NodeResourcesFit",
        "NodeAffinity",
        "PodTopologySpread",
        "InterPodAffinity",
        "DefaultPreemption",
        "VolumeBinding",
        "DynamicResources",
        "PrioritySort",
        "DefaultBinder",
        "ImageLocality",
        "*",
    ),
    (*_ODD, "SelectorSpread", "NoSuchPlugin"),
)
#: Values that mean something, by the name of the field.
_KNOWN: dict[str, Shape] = {
    "apiVersion": Leaf(
        ("kubescheduler.config.k8s.io/v1",), (*_ODD, "kubescheduler.config.k8s.io/v1beta3", "v1")
    ),
    "kind": Leaf(("",), (*_ODD, "KubeSchedulerConfiguration", "NodeResourcesFitArgs")),
    "name": _PLUGIN,
    "schedulerName": Leaf(("default-scheduler", "other", "third"), _ODD),
    "urlPrefix": Leaf(("http://a.test/x", "https://b.test", "http://c.test:8080/"), _ODD),
    "operator": Leaf(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), _ODD),
    "type": Leaf(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"), _ODD),
    "whenUnsatisfiable": Leaf(("DoNotSchedule", "ScheduleAnyway"), _ODD),
    "defaultingType": Leaf(("List", "System"), _ODD),
    "topologyKey": Leaf(("topology.kubernetes.io/zone",), _ODD),
    "key": Leaf(("zone", "example.com/x"), _ODD),
    "resourceLock": Leaf(("leases",), (*_ODD, "endpoints")),
    "caData": Leaf(("", "eA=="), (*_ODD, "e", "===")),
}
_DURATION = Leaf(
    ("1s", "15s", "1m0s", "100ms", "0s", 5),
    (*_ODD, "1e9s", "s", "-", "1.5.5s", "\u0663s", float("1e300")),
)


class _Shapes:
    """Makes shapes of the parts of a JSON schema."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._parts = schema.get("$defs", {})
        self._made: dict[str, Shape] = {}

    def of(self, part: dict[str, Any], name: str = "", depth: int = 0) -> Shape:
        """``name`` is the field's."""
        if name in _KNOWN:
            return _KNOWN[name]
        if "$ref" in part:
            return self._named(part["$ref"].rsplit("/", 1)[1], name, depth)
        for union in ("anyOf", "oneOf"):
            if union in part:
                return _Any([self.of(each, name, depth + 1) for each in part[union]])
        return self._typed(part, name, depth)

    def _named(self, reference: str, name: str, depth: int) -> Shape:
        if reference not in self._made:
            self._made[reference] = self.of(self._parts[reference], name, depth)
        return self._made[reference]

    def _typed(self, part: dict[str, Any], name: str, depth: int) -> Shape:
        match part.get("type"):
            case "object" if "properties" in part:
                return Obj(
                    {
                        field: Field(self.of(each, field, depth + 1), 0.2)
                        for field, each in part["properties"].items()
                    }
                )
            case "object":
                value = part.get("additionalProperties")
                return Map(
                    _TEXT, self.of(value, "", depth + 1) if isinstance(value, dict) else _TEXT
                )
            case "array":
                return List(self.of(part.get("items", {}), name.removesuffix("s"), depth + 1), 3)
            case "integer":
                return Number(0, 100)
            case "number":
                return Leaf((0.5, 1, 100, -1), (*_ODD, float("1e308")))
            case "boolean":
                return Leaf((True, False), (None, 0, "true", "yes"))
            case "null":
                return Leaf((None,))
        return (
            _DURATION
            if any(
                word in name.lower()
                for word in ("timeout", "duration", "deadline", "period", "seconds")
            )
            else _TEXT
        )


class _Any:
    """One of several shapes."""

    def __init__(self, shapes: list[Shape]) -> None:
        self._shapes = shapes

    def valid(self, random: Random, harm: float) -> Any:
        return random.choice(self._shapes).valid(random, harm)

    def wrong(self, random: Random) -> Any:
        return random.choice(self._shapes).wrong(random)


def _shape(model: Any) -> Shape:
    schema = model_of(model).model_json_schema(by_alias=True)
    return _Shapes(schema).of({key: value for key, value in schema.items() if key != "$defs"})


MAIN = _shape(KubeSchedulerConfiguration)
EXTENSION = _shape(AiokubeSchedulerConfiguration)

_YAML = ("---\n", "...\n", "&a", "*a", "<<: *a", "!!python/object:os.system", "!!binary eA==", "? ", ": ", "- ", "\t", "%YAML 9.9\n", "|\n ", ">-\n", "{", "}", "[", "]", "'", '"', "#", "@", "`", "\x85", "\ufeff", "\0", "\ud7ff", "1_000", "0o17", "0x1f", "1:30", "~", "y", "2026-01-01", ".inf", ".nan", "&a [*a]", "=")  # fmt: skip


#: Characters of a file at most: the reader takes a second for 100,000.
_LONGEST = 20_000


def text(random: Random, harm: float) -> str:
    """A file."""
    while len(made := _text(random, harm)) > _LONGEST:
        pass
    return made


def _text(random: Random, harm: float) -> str:
    documents = [{**_document(MAIN, random, harm), "kind": "KubeSchedulerConfiguration"}]
    if random.random() < 0.3:
        mine = {
            "apiVersion": "aiokube-scheduler.io/v1alpha1",
            "kind": "AiokubeSchedulerConfiguration",
        }
        documents.append(_document(EXTENSION, random, harm) | mine)
    written = "\n---\n".join(
        msgspec.json.encode(document).decode("utf-8", "replace") for document in documents
    )
    if random.random() < harm:
        written = str(junk(random)) if random.random() < 0.5 else bytes(nested(random)).decode()
    while random.random() < harm:
        at = random.randrange(len(written) + 1)
        written = written[:at] + random.choice(_YAML) + written[at + random.choice([0, 0, 1, 5]) :]
    return written


def _document(shape: Shape, random: Random, harm: float) -> dict[str, Any]:
    document = shape.valid(random, harm)
    if "apiVersion" in document and random.random() > harm:
        document["apiVersion"] = "kubescheduler.config.k8s.io/v1"
    return document


def run(seed: int, number: int, figures: Figures) -> None:
    """So many files. Raises what is raised for a file besides ConfigurationError."""
    random = Random(seed)
    for _ in range(number):
        figures.results.update(
            [f"configuration {read(text(random, random.choice([0.0, 0.02, 0.2])))}"]
        )
    figures.events += number


def read(file: str) -> str:
    """Reads a file, and says all that is said about it: ``valid`` or ``refused``."""
    try:
        loaded = load(file)
        checked = Checked("file", file, loaded, loaded.to_plain())
    except ConfigurationError as error:
        checked = Checked("file", file, error)
    as_text(checked).encode()
    msgspec.json.encode(as_object(checked))
    if isinstance(checked.result, ConfigurationError) and not checked.result.problems:
        raise Violation(f"refused without a reason: {file[:2000]!r}")
    return "valid" if checked.is_valid else "refused"
