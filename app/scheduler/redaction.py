"""``--redact``: hides names, labels and texts in the records of a recording (docs/replay.md says what is hidden).

A text is replaced by a keyed hash of itself, the same wherever it stands: selectors, references and topology still
match. Fields whose texts are words of Kubernetes, quantities or expressions stay; every other text is hidden.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final

import msgspec
import yaml

from app.scheduler.trace import MAX_RECORD, Header, Op, PodRecord, records_of

#: Texts that stay wherever they stand: empty ones, whole numbers, which Gt and Lt compare, and switches.
_PLAIN: Final = re.compile(r"(-?[0-9]{1,18}|true|false|yes|no)?")
#: Keys of labels, taints and annotations whose domain is one of Kubernetes stay.
_WELL_KNOWN: Final = re.compile(r"([a-z0-9.-]+\.)?(kubernetes|k8s)\.io/.+")

_KEPT_FIELDS: Final = frozenset(
    {
        *("kind", "apiVersion", "uid", "resourceVersion", "resource", "schedulerName"),
        *("operator", "effect", "phase", "type", "status", "reason", "action", "protocol"),
        *("accessModes", "volumeMode", "volumeBindingMode", "whenUnsatisfiable", "hostIP"),
        *("driver", "provisioner", "attacher", "declaredFeatures", "bindMountOptions"),
        *("allocationMode", "expression", "request", "disruptionMode", "pools"),
    }
)
_KEPT_ENDINGS: Final = ("Policy", "Timestamp", "Time")
#: Maps whose keys are names of resources, and whose values are quantities.
_AMOUNTS: Final = frozenset(
    {*("requests", "limits", "capacity", "allocatable", "overhead"), "allocatedResources"}
)
#: Maps of labels and annotations; some fields have these names, and parts.
_LABELS: Final = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "selector"})
#: Texts that are keys of labels or taints.
_KEYS: Final = frozenset({"key", "topologyKey", "topologyKeys", "matchLabelKeys"})
#: What expressions of claims read stays; only these fields are hidden in it.
_DEVICES: Final = frozenset({"devices", "sharedCounters"})
_HIDDEN_OF_DEVICES: Final = frozenset({"pool", "nodeName", "namespace"})
#: Kinds whose names are those of drivers, and of extended resources.
_NAMED_BY_RULES: Final = frozenset({"CSIDriver", "DeviceClass"})
_MIGRATED: Final = "storage.alpha.kubernetes.io/migrated-plugins"
#: Parts of a configuration that have labels or keys.
_OF_CONFIGURATION: Final = frozenset(
    {"addedAffinity", "defaultConstraints", "podSelector", "namespaceSelector"}
)
#: Hashes that are remembered.
_MOST: Final = 100_000
_ANSWERS: Final = frozenset({"filter", "prioritize"})
#: What is raised where an answer has another form.
_OTHER_FORM: Final = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
_FIELD: Final = {name: at for at, name in enumerate(PodRecord.__struct_fields__)}
_json: Final = msgspec.json.Encoder().encode


class Redactor:
    """Hides what records say, with a key of its own."""

    def __init__(self, key: bytes) -> None:
        """``key``: at most 64 bytes, which nobody else knows."""
        self._key: Final = key
        self._known: Final[dict[str, str]] = {}

    def hide(self, text: str) -> str:
        """What stands for a text."""
        known = self._known.get(text)
        if known is None:
            known = text
            if not _PLAIN.fullmatch(text):
                digest = hashlib.blake2b(text.encode(), key=self._key, digest_size=8)
                known = f"x{digest.hexdigest()}"
            if len(self._known) >= _MOST:
                self._known.clear()
            self._known[text] = known
        return known

    def encoded(self, packed: bytes) -> bytes:
        """A record, or an array of records, as it is written. Raises if it cannot be read."""
        decoded = msgspec.msgpack.decode(packed)
        if isinstance(decoded, dict):
            return msgspec.msgpack.encode(self._header(msgspec.convert(decoded, Header)))
        packed = msgspec.msgpack.encode([self.record(each) for each in records_of(decoded)])
        if len(packed) > MAX_RECORD:
            raise ValueError(f"records have {len(packed)} bytes once names are hidden")
        return packed

    def _header(self, header: Header) -> Header:
        documents = [
            self._configuration(each) for each in yaml.safe_load_all(header.configuration) if each
        ]
        text = yaml.safe_dump_all(documents, sort_keys=False)
        return msgspec.structs.replace(header, configuration=text, redacted=True)

    def _configuration(self, value: Any, field: str = "") -> Any:
        if field in _OF_CONFIGURATION:
            return self.value(value)
        if isinstance(value, dict):
            return {name: self._configuration(each, name) for name, each in value.items()}
        if isinstance(value, list):
            return [self._configuration(each, field) for each in value]
        return self._url(value) if field == "urlPrefix" else value

    def _url(self, url: str) -> str:
        scheme, separator, rest = url.partition("://")
        return f"{scheme}://{self.hide(rest)}" if separator else url

    # ------------------------------------------------------------ records

    def record(self, fields: list[Any]) -> list[Any]:
        """A record without what is to be hidden. Raises if it has other fields than its kind has."""
        op, *rest = fields
        hidden = self._HANDLERS.get(op)
        return fields if hidden is None else [op, *hidden(self, *rest)]

    def _template(self, number: int, text: bytes) -> tuple[Any, ...]:
        return number, _json(self.value(msgspec.json.decode(text)))

    def _label_set(self, number: int, labels: dict[str, str]) -> tuple[Any, ...]:
        return number, self._labels(labels)

    def _names(self, number: int, text: bytes) -> tuple[Any, ...]:
        return number, _json([self.hide(name) for name in msgspec.json.decode(text)])

    def _rows(self, names: list[str], free: list[int]) -> tuple[Any, ...]:
        return [self.hide(name) for name in names], free

    def _object(self, kind: str, text: bytes) -> tuple[Any, ...]:
        return kind, self.object(kind, text)

    def _changed(self, now: float, kind: str, text: bytes) -> tuple[Any, ...]:
        return now, kind, self.object(kind, text)

    def _listed(self, now: float, kind: str, texts: list[bytes], *more: Any) -> tuple[Any, ...]:
        return now, kind, [self.object(kind, text) for text in texts], *more

    def _pod(self, pod: list[Any]) -> tuple[Any, ...]:
        return (self.pod(pod),)

    def _pod_changed(self, now: float, pod: list[Any], *rest: Any) -> tuple[Any, ...]:
        return now, self.pod(pod), *rest

    def _pod_bound(self, now: float, uid: str, node: str, version: str) -> tuple[Any, ...]:
        return now, uid, self.hide(node), version

    def _listed_pods(self, now: float, pods: list[list[Any]], *more: Any) -> tuple[Any, ...]:
        return now, [self.pod(pod) for pod in pods], *more

    def _deleted(self, now: float, kind: str, key: str) -> tuple[Any, ...]:
        if kind in _NAMED_BY_RULES:
            return now, kind, key
        return now, kind, "/".join(self.hide(part) for part in key.split("/"))

    def _on_node(self, uid: str, node: str, *rest: Any) -> tuple[Any, ...]:
        return uid, self.hide(node), *rest

    def _refreshed(self, namespace: str) -> tuple[Any, ...]:
        return (self.hide(namespace),)

    def _message(self, uid: str, _message: str) -> tuple[Any, ...]:
        return uid, ""

    def _failed(
        self, now: float, uid: str, node: str | None, plugins: list[str], pending: list[str]
    ) -> tuple[Any, ...]:
        named = (sorted(map(self._url, names)) for names in (plugins, pending))
        return now, uid, node and self.hide(node), *named

    def _called(
        self,
        now: float,
        extender: str,
        verb: str,
        uid: str,
        outcome: str,
        seconds: float,
        answer: bytes,
        *rest: Any,
    ) -> tuple[Any, ...]:
        text = self._answer(answer) if verb in _ANSWERS else b""
        return now, self._url(extender), verb, uid, outcome, seconds, text, *rest

    def _answer(self, text: bytes) -> bytes:
        """The nodes and scores of an answer; nothing of one that has another form. Names of fields in any case, as Go
        reads them."""
        try:
            answer = msgspec.json.decode(text)
            if isinstance(answer, list):
                return _json([self._score(each) for each in answer])
            parts = {name: self._part(name, value) for name, value in answer.items()}
            return _json({name: part for name, part in parts.items() if part is not None})
        except (RecursionError, *_OTHER_FORM):
            return b""

    def _score(self, entry: dict[str, Any]) -> dict[str, Any]:
        given = {name.lower(): value for name, value in entry.items()}
        return {"Host": self.hide(given["host"]), "Score": int(given["score"])}

    def _part(self, name: str, value: Any) -> Any:
        """A field of the answer to filter; None for any other."""
        match name.lower(), value:
            case "nodenames", list():
                return [self.hide(node) for node in value]
            case "nodes", {"items": list(items)}:
                nodes = [each["metadata"]["name"] for each in items]
                return {"items": [{"metadata": {"name": self.hide(node)}} for node in nodes]}
            case "failednodes" | "failedandunresolvablenodes", dict():
                return {self.hide(node): "" for node in value}
            case "error", str():
                return self.hide(value)
        return None

    # ------------------------------------------------------------ objects

    def pod(self, record: list[Any]) -> list[Any]:
        """A PodRecord."""
        made = list(record)
        for name in ("namespace", "name", "node_name", "pod_group_name", "nominated_node_name"):
            made[_FIELD[name]] = self.hide(record[_FIELD[name]])
        for name in ("owner", "conditions", "claim_statuses"):
            made[_FIELD[name]] = self.value(record[_FIELD[name]])
        if extended := record[_FIELD["extended_claim_status"]]:
            made[_FIELD["extended_claim_status"]] = self.hide(extended.decode()).encode()
        return made

    def object(self, kind: str, text: bytes) -> bytes:
        """An object as JSON."""
        told = msgspec.json.decode(text)
        made = self.value(told)
        if kind in _NAMED_BY_RULES:
            made["metadata"]["name"] = told["metadata"]["name"]
        elif kind == "CSINode":
            for driver, other in zip(
                told.get("spec", {}).get("drivers") or (),
                made.get("spec", {}).get("drivers") or (),
                strict=True,
            ):
                other["name"] = driver["name"]
        elif kind == "PodDisruptionBudget" and (
            gone := told.get("status", {}).get("disruptedPods")
        ):
            made["status"]["disruptedPods"] = {self.hide(name): at for name, at in gone.items()}
        return _json(made)

    def value(self, value: Any, field: str = "") -> Any:
        """A part of an object; ``field``: that which has it."""
        if isinstance(value, str):
            return self._text(value, field)
        if isinstance(value, list):
            return [self.value(each, field) for each in value]
        if not isinstance(value, dict) or field in _AMOUNTS:
            return value
        if field in _LABELS and _is_flat(value):
            return self._labels(value)
        if field in _DEVICES:
            return self._of_devices(value)
        return {name: self._field(name, each) for name, each in value.items()}

    def _field(self, name: str, value: Any) -> Any:
        return self._of_devices(value) if name in _DEVICES else self.value(value, name)

    def _text(self, text: str, field: str) -> str:
        if field in _KEPT_FIELDS or field.endswith(_KEPT_ENDINGS):
            return text
        if field in _KEYS:
            return self._label_key(text)
        if field in {"image", "names", "reference"}:
            return self._image(text)
        return self.hide(text)

    def _labels(self, labels: Mapping[str, str]) -> dict[str, str]:
        return {
            self._label_key(key): value if key == _MIGRATED else self.hide(value)
            for key, value in labels.items()
        }

    def _label_key(self, key: str) -> str:
        return key if _WELL_KNOWN.fullmatch(key) or key == "metadata.name" else self.hide(key)

    def _image(self, name: str) -> str:
        """An image's name, with a tag, so that it stays what it is: names without one mean ``latest``."""
        if name.rfind(":") <= name.rfind("/"):
            name += ":latest"
        return f"{self.hide(name)}:hidden"

    def _of_devices(self, value: Any, field: str = "") -> Any:
        if isinstance(value, list):
            return [self._of_devices(each, field) for each in value]
        if isinstance(value, dict):
            if field == "nodeSelector":
                return self.value(value, "")
            return {name: self._of_devices(each, name) for name, each in value.items()}
        return self.hide(value) if field in _HIDDEN_OF_DEVICES else value

    #: By the kind of record; what is not here has nothing to hide.
    _HANDLERS: ClassVar[Mapping[str, Callable[..., tuple[Any, ...]]]] = {
        Op.TEMPLATE: _template,
        Op.LABELS: _label_set,
        Op.NAMES: _names,
        Op.ROWS: _rows,
        Op.OBJECT: _object,
        Op.POD: _pod,
        Op.ASSUMED: _on_node,
        Op.NOMINATED: _on_node,
        Op.CHANGED: _changed,
        Op.POD_CHANGED: _pod_changed,
        Op.POD_BOUND: _pod_bound,
        Op.DELETED: _deleted,
        Op.LISTED: _listed,
        Op.LISTED_PODS: _listed_pods,
        Op.REFRESH_LANES: _refreshed,
        Op.ASSUME: _on_node,
        Op.UNFIT: _message,
        Op.REJECTED: _message,
        Op.FAIL: _failed,
        Op.FREED: _pod_changed,
        Op.GONE: _pod_changed,
        Op.EVICT: _on_node,
        Op.CALL: _called,
    }


def _is_flat(value: Mapping[str, Any]) -> bool:
    """Whether it is a map of labels, and no LabelSelector or NodeSelector."""
    return all(isinstance(each, str) for each in value.values())
