"""Faults over HTTP, for tests whose cluster runs in a process of its own.

======  =========================  ===================================================
method  path                       does
======  =========================  ===================================================
POST    /debug/cluster/faults      puts a fault in force (the fields of ``Fault``)
DELETE  /debug/cluster/faults      forgets all faults; who waits because of one goes on
POST    /debug/cluster/cut         cuts every connection, this one too
POST    /debug/cluster/refuse      cuts, and refuses connections for ``{"seconds": n}``
POST    /debug/cluster/compact     forgets the history of changes
GET     /debug/cluster             counts: revision, watchers, objects by resource
======  =========================  ===================================================
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import msgspec
from aiohttp import web

from app.sim.api import Api
from app.sim.errors import bad_request
from app.sim.http.faults import Fault, Faults
from app.sim.http.handlers import json_response

_ROOT: Final = "/debug/cluster"


class Controls(Protocol):
    """The faults that a cluster can be given."""

    api: Api
    faults: Faults

    @property
    def watcher_count(self) -> int: ...
    def cut_connections(self) -> int: ...
    def refuse_connections(self, seconds: float) -> None: ...
    def compact(self) -> None: ...


class DebugSurface:
    """Answers requests below ``/debug/cluster``."""

    def __init__(self, cluster: Controls) -> None:
        self._cluster = cluster
        self._actions: Mapping[tuple[str, str], Callable[[bytes], Any]] = {
            ("GET", _ROOT): self._statistics,
            ("POST", f"{_ROOT}/faults"): self._add_fault,
            ("DELETE", f"{_ROOT}/faults"): self._clear_faults,
            ("POST", f"{_ROOT}/cut"): self._cut,
            ("POST", f"{_ROOT}/refuse"): self._refuse,
            ("POST", f"{_ROOT}/compact"): self._compact,
        }

    def __call__(self, method: str, path: str, body: bytes) -> web.Response | None:
        """Answers a request; returns None for other paths. Raises 400."""
        action = self._actions.get((method, path))
        if action is None:
            return None
        try:
            answer = action(body)
        except (msgspec.ValidationError, msgspec.DecodeError) as error:
            raise bad_request(str(error)) from error
        return json_response(msgspec.json.encode(answer))

    def _statistics(self, _body: bytes) -> Any:
        store = self._cluster.api.store
        objects = {resource: len(items.records) for resource, items in store.items()}
        return {
            "revision": store.revision,
            "watchers": self._cluster.watcher_count,
            "objects": {resource: count for resource, count in objects.items() if count},
        }

    def _add_fault(self, body: bytes) -> Any:
        self._cluster.faults.add(msgspec.json.decode(body, type=Fault))
        return {"faults": len(list(self._cluster.faults))}

    def _clear_faults(self, _body: bytes) -> Any:
        self._cluster.faults.clear()
        return {"faults": 0}

    def _cut(self, _body: bytes) -> Any:
        return {"cut": self._cluster.cut_connections()}

    def _refuse(self, body: bytes) -> Any:
        seconds = msgspec.json.decode(body, type=dict[str, float]).get("seconds", 1.0)
        self._cluster.refuse_connections(seconds)
        return {"seconds": seconds}

    def _compact(self, _body: bytes) -> Any:
        self._cluster.compact()
        return {}
