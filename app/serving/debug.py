"""Serves ``/debug/...``: queue, cache, pod histories, tasks, verbosity. All of it requires authorization.

====================================  ============================================================
path                                  shows
====================================  ============================================================
/debug                                these paths
/debug/queue                          counts, and every pod that waits or is in flight (JSON)
/debug/bindings                       bindings that were sent and whose outcome is unknown
/debug/cache                          every node with its pods (text)
/debug/cache/compare                  differences between the watches and the scheduler's state
/debug/watches                        the watch of each kind, and objects that cannot be used (JSON)
/debug/pods                           the pods handled last, with their last attempts
/debug/pods/NAMESPACE/NAME            what ``explain`` prints
/debug/nodes/NAME                     a node with its pods (JSON)
/debug/rejections                     pods that a kubelet rejected, by reason, and the latest of them (JSON)
/debug/extenders                      calls to each extender, and how those in shadow compare (JSON)
/debug/feed                           all of it as it changes (see app.serving.feed)
/debug/tasks                          the tasks of the event loop, and where each waits
/debug/flags/v                        PUT changes the verbosity of the log
====================================  ============================================================
"""

import asyncio
import itertools
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import msgspec
from aiohttp import web

from app.model.pod import Pod
from app.model.requests import allocatable_units
from app.observe.explain import Explanation
from app.observe.histories import Histories, PodHistory
from app.runtime import logs
from app.runtime.tasks import in_steps
from app.serving.access import status_response
from app.serving.debugger import CacheDebugger
from app.serving.pages import JSON, Dumps, as_json, json_parts
from app.serving.requests import body_of, whole_number
from app.state.queue.queued_pod import QueuedPod
from app.wire.sanitize import encode

#: Pods listed by /debug/pods unless ``?limit=`` says otherwise.
_LATEST: Final = 100
_NODES_AT_ONCE: Final = 50
_TEXT: Final = "text/plain; charset=utf-8"


class DebugPages:
    """The pages; ``profiling`` (enableProfiling) switches tasks and verbosity."""

    def __init__(
        self,
        debugger: CacheDebugger,
        explain: Callable[[str, str], Explanation | None],
        histories: Histories,
        dumps: Dumps,
        *,
        reports: Mapping[str, Callable[[], Any]],
        profiling: bool,
    ) -> None:
        """``reports``: further pages under /debug, by name; what each returns is served as JSON."""
        self._queue: Final = debugger.state.queue
        self._debugger: Final = debugger
        self._explain: Final = explain
        self._histories: Final = histories
        self._dumps: Final = dumps
        self._reports: Final = reports
        self._profiling: Final = profiling

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        routes = [
            web.get("/debug", self._index),
            web.get("/debug/queue", self._queue_page),
            web.get("/debug/cache", self._cache),
            web.get("/debug/cache/compare", self._compare),
            web.get("/debug/pods", self._pods),
            web.get("/debug/pods/{namespace}/{name}", self._pod),
            web.get("/debug/nodes/{name}", self._node),
            *(web.get(f"/debug/{name}", self._report) for name in self._reports),
        ]
        if self._profiling:
            routes += [
                web.get("/debug/tasks", self._tasks),
                web.put("/debug/flags/v", self._set_verbosity),
            ]
        return routes

    async def _index(self, _request: web.Request) -> web.Response:
        return web.Response(
            text="".join(f"{route.method} {route.path}\n" for route in self.routes())
        )

    async def _queue_page(self, request: web.Request) -> web.StreamResponse:
        counts = encode(msgspec.structs.asdict(self._queue.statistics()))
        entries = map(_entry, self._queue.all_pods())
        parts = json_parts(entries, b'{"counts":%b,"pods":' % counts, b"}")
        return await self._dumps.streamed(request, parts, JSON)

    async def _report(self, request: web.Request) -> web.Response:
        return as_json(self._reports[request.path.rpartition("/")[2]]())

    async def _cache(self, request: web.Request) -> web.StreamResponse:
        return await self._dumps.streamed(request, self._cache_parts(), _TEXT)

    def _cache_parts(self) -> Iterator[bytes]:
        nodes = self._debugger.node_dump()
        while part := list(itertools.islice(nodes, _NODES_AT_ONCE)):
            yield "".join(f"{node}\n\n" for node in part).encode(errors="replace")

    async def _compare(self, _request: web.Request) -> web.Response:
        nodes = self._debugger.compare_nodes()
        async with self._dumps.turn():
            pods = await in_steps(self._debugger.compare_pods())
        return as_json(
            {
                "equal": not nodes and not pods,
                "nodes": msgspec.structs.asdict(nodes),
                "pods": msgspec.structs.asdict(pods),
            }
        )

    async def _pods(self, request: web.Request) -> web.StreamResponse:
        limit = request.query.get("limit", "")
        histories = self._histories.latest(whole_number(limit, "limit") if limit else _LATEST)
        return await self._dumps.streamed(request, json_parts(map(_last, histories)), JSON)

    async def _pod(self, request: web.Request) -> web.Response:
        namespace, name = request.match_info["namespace"], request.match_info["name"]
        explanation = self._explain(namespace, name)
        if explanation is None:
            text = f'pods "{name}" not found in namespace "{namespace}", and it has no history'
            return status_response(404, "NotFound", text)
        return as_json(explanation)

    async def _node(self, request: web.Request) -> web.StreamResponse:
        name, table = request.match_info["name"], self._debugger.state.table
        row = table.row_of.get(name)
        if row is None:
            return status_response(404, "NotFound", f'nodes "{name}" not found')
        node, pods = table.nodes[row], list(table.pods[row].values())
        about = {
            "name": name,
            "exists": node is not None,
            "labels": node.labels if node is not None else {},
            "taints": node.spec.taints or () if node is not None else (),
            "unschedulable": node is not None and node.spec.unschedulable,
            "allocatable": allocatable_units(node.status.allocatable) if node is not None else {},
            "requested": {each: table.requested.exact(each, row) for each in table.requested.names},
        }
        entries = (self._pod_on_node(pod) for pod in sorted(pods, key=lambda pod: pod.key))
        parts = json_parts(entries, b'{"node":%b,"pods":' % encode(about), b"}")
        return await self._dumps.streamed(request, parts, JSON)

    def _pod_on_node(self, pod: Pod) -> dict[str, Any]:
        return {
            "pod": pod.key,
            "uid": pod.uid,
            "priority": pod.priority,
            "phase": pod.phase,
            "terminating": pod.terminating,
            "scheduler": pod.spec.scheduler_name,
            "requests": dict(pod.resources.requested),
        }

    async def _tasks(self, request: web.Request) -> web.StreamResponse:
        tasks = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
        parts = (_task(task).encode(errors="replace") for task in tasks)
        return await self._dumps.streamed(request, parts, _TEXT)

    async def _set_verbosity(self, request: web.Request) -> web.Response:
        text = (await body_of(request)).decode("ascii", "replace").strip()
        verbosity = whole_number(text, "the verbosity")
        logs.set_verbosity(verbosity)
        return web.Response(text=f"successfully set verbosity to {verbosity}")


def _entry(queued: QueuedPod) -> dict[str, Any]:
    return {
        "pod": queued.pod.key,
        "uid": queued.pod.uid,
        "place": queued.place.value,
        "priority": queued.pod.priority,
        "attempts": queued.attempts,
        "timestamp": queued.timestamp,
        "backoffUntil": queued.backoff_expiration,
        "rejectors": sorted(queued.rejectors),
        "gatingPlugin": queued.gating_plugin,
        "gatingMessage": queued.gating_status.message,
        "nominatedNode": queued.pod.nominated_node_name,
        "moves": queued.story,
    }


def _last(history: PodHistory) -> dict[str, Any]:
    return {
        "pod": f"{history.namespace}/{history.name}",
        "uid": history.uid,
        "last": history.attempts[-1] if history.attempts else None,
    }


def _task(task: "asyncio.Task[Any]") -> str:
    """A task's name and the stack where it waits."""
    frames = task.get_stack(limit=3)
    places = traceback.StackSummary.extract((frame, frame.f_lineno) for frame in frames)
    where = "".join(f"    {p.filename}:{p.lineno} {p.name}\n" for p in places)
    return f"{task.get_name()}\n{where}"
