"""Writes recordings record by record, for tests of what is made of them."""

import itertools
import json
from pathlib import Path
from typing import Any

import msgspec

from app.scheduler.trace import BlockWriter, Header, Op
from tests.core.scheduler.full_state import CONFIG

BEGAN = 1_000_000.0
SCHEDULER = "default-scheduler"


def configuration(**fields: Any) -> str:
    return json.dumps(json.loads(CONFIG) | fields)


def node(name: str, cpu: str = "4", **labels: str) -> bytes:
    amounts = {"cpu": cpu, "memory": "32Gi", "pods": "110"}
    metadata = {"name": name, "uid": f"uid-{name}", "labels": labels}
    return msgspec.json.encode({"metadata": metadata, "status": {"allocatable": amounts}})


class Script:
    """A recording of a scheduler; times are seconds since its beginning."""

    def __init__(self, folder: Path, config: str = CONFIG, *nodes: bytes) -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        header = Header("0", config, "1.36", [], 300.0, BEGAN, first=True)
        rng = {
            "bit_generator": "PCG64",
            "state": {"state": "1", "inc": "1"},
            "has_uint32": 0,
            "uinteger": 0,
        }
        checkpoint = [Op.CHECKPOINT, BEGAN, msgspec.json.encode(rng)]
        self.records: list[Any] = [header, [Op.ROWS, [], []], checkpoint]
        self._numbers = itertools.count(1)
        self.add(Op.LISTED, BEGAN, "Node", list(nodes))

    def add(self, op: Op, *fields: Any) -> None:
        self.records.append([op, *fields])

    def pod(self, at: float, name: str, cpu: str = "1", priority: int = 0, **spec: Any) -> None:
        """A pod arrives."""
        self.placed(at, name, "", cpu, priority=priority, **spec)

    def placed(
        self,
        at: float,
        name: str,
        node_name: str,
        cpu: str = "1",
        *,
        ends: bool = False,
        **spec: Any,
    ) -> None:
        """A version of a pod that others have bound; ``ends``: and deleted."""
        containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}]
        text = {"schedulerName": SCHEDULER, "priority": 0, "containers": containers} | spec
        template, labels = next(self._numbers), next(self._numbers)
        self.add(Op.TEMPLATE, template, msgspec.json.encode(text))
        self.add(Op.LABELS, labels, {"app": name})
        record = ["default", name, f"uid-{name}", template, labels, str(next(self._numbers)), 1]
        record += ["2026-01-01T00:00:00Z" if ends else None, False, None, node_name, "", ""]
        record += ["Running" if node_name else "Pending", [], None, None, [], b""]
        self.add(Op.POD_CHANGED, BEGAN + at, record)

    def bound(
        self,
        at: float,
        name: str,
        node_name: str,
        tried: float | None = None,
        sent: float | None = None,
    ) -> None:
        """The scheduler tries a pod and binds it by a request."""
        uid = f"uid-{name}"
        self.add(Op.POP, BEGAN + (at if tried is None else tried), uid, False)
        self.add(Op.ASSUME, uid, node_name)
        self.add(Op.DONE, uid)
        self.add(Op.POD_BOUND, BEGAN + at, uid, node_name, str(next(self._numbers)))
        if sent is not None:
            self.add(Op.REQUEST, BEGAN + at, "POST", 201, at - sent)
        self.add(Op.BOUND, uid)

    def gone(self, at: float, name: str) -> None:
        self.add(Op.DELETED, BEGAN + at, "Pod", f"default/{name}")

    def call(
        self, at: float, verb: str, name: str, names: list[str], answer: Any, **more: Any
    ) -> None:
        """An extender is asked about a pod and these nodes."""
        number = next(self._numbers)
        self.add(Op.NAMES, number, msgspec.json.encode(names))
        outcome, seconds = more.get("outcome", "success"), more.get("seconds", 0.5)
        text = msgspec.json.encode(answer)
        extender, status = more.get("extender", "http://ext"), more.get("status", 200)
        fields = (extender, verb, f"uid-{name}", outcome, seconds, text, number, status, None)
        self.add(Op.CALL, BEGAN + at, *fields)

    def ends(self, at: float) -> Path:
        """Writes it."""
        self.add(Op.FLUSH, BEGAN + at)
        writer = BlockWriter(self.folder / "00000001.aktrace")
        writer.write([msgspec.msgpack.encode(record) for record in self.records])
        writer.close()
        return self.folder
