"""Serves ``/metrics``, ``/metrics/resources``, ``/metrics/slis``, ``/configz``, ``/statusz`` and ``/flagz``."""

import asyncio
import datetime as dt
import itertools
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from aiohttp import web
from aiohttp.hdrs import METH_HEAD
from prometheus_client import CollectorRegistry

from app.model.features import RECORDED, Features
from app.model.pod import Pod
from app.observe.metrics.exposition import CONTENT_TYPE, exposition
from app.observe.metrics.resources import pod_resource_metrics
from app.observe.metrics.series import MetricFamilies
from app.settings.dump import extension_to_dict, to_dict
from app.settings.extension import AiokubeSchedulerConfiguration
from app.settings.load import Settings
from app.wire.sanitize import encode

JSON: Final = "application/json"
#: Long answers produced at a time, and answers to /metrics, so that many requests cannot keep the process busy.
AT_ONCE: Final = 2
#: Items of a list that are encoded in one step.
_ITEMS: Final = 50
_PROGRAM: Final = "aiokube-scheduler"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)


class UnfinishedError(Exception):
    """A long answer failed after its headers were sent, so that no error can be answered. Its cause is the reason."""


class Dumps:
    """Sends long answers, AT_ONCE at a time, in pieces between which other tasks run."""

    def __init__(self) -> None:
        self._places: Final = asyncio.Semaphore(AT_ONCE)

    def turn(self) -> asyncio.Semaphore:
        """Held while an answer is produced."""
        return self._places

    async def streamed(
        self, request: web.Request, parts: Iterable[bytes], content_type: str
    ) -> web.StreamResponse:
        """Sends the parts, of which HEAD asks for none. Raises UnfinishedError if producing one fails."""
        headers = {"Content-Type": content_type, "Cache-Control": "no-cache, private"}
        response = web.StreamResponse(headers=headers)
        response.enable_compression()
        if request.method == METH_HEAD:
            return response
        async with self._places:
            await response.prepare(request)
            try:
                for part in parts:
                    await response.write(part)
                    await asyncio.sleep(0)
            except ConnectionError:
                raise
            except Exception as error:
                raise UnfinishedError from error
            await response.write_eof()
        return response


def json_parts(items: Iterable[Any], head: bytes = b"", tail: bytes = b"") -> Iterator[bytes]:
    """A JSON array in pieces of some items, between ``head`` and ``tail``."""
    before = head + b"["
    rest = iter(items)
    while part := list(itertools.islice(rest, _ITEMS)):
        yield before + b",".join(map(encode, part))
        before = b","
    yield (before if before != b"," else b"") + b"]" + tail


class MetricsPages:
    """The metrics of the process, of its health checks, and of the pods."""

    def __init__(
        self,
        registry: CollectorRegistry,
        slis: CollectorRegistry,
        families: MetricFamilies,
        pods: Callable[[], Sequence[Pod]],
        dumps: Dumps,
    ) -> None:
        """``pods``: the pods of /metrics/resources; none on a standby."""
        self._registry: Final = registry
        self._slis: Final = slis
        self._families: Final = families
        self._pods: Final = pods
        self._dumps: Final = dumps
        self._places: Final = asyncio.Semaphore(AT_ONCE)

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        return [
            web.get("/metrics", self._metrics),
            web.delete("/metrics", self._reset),
            web.get("/metrics/slis", self._slis_page),
            web.get("/metrics/resources", self._resources),
        ]

    async def _metrics(self, _request: web.Request) -> web.Response:
        return await self._exposed(self._registry)

    async def _slis_page(self, _request: web.Request) -> web.Response:
        return await self._exposed(self._slis)

    async def _reset(self, _request: web.Request) -> web.Response:
        self._families.reset()
        return web.Response(text="metrics reset\n")

    async def _resources(self, request: web.Request) -> web.StreamResponse:
        parts = pod_resource_metrics(self._pods())
        return await self._dumps.streamed(request, parts, CONTENT_TYPE)

    async def _exposed(self, registry: CollectorRegistry) -> web.Response:
        async with self._places:
            body = await exposition(registry)
        response = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
        response.enable_compression()
        return response


class AboutPages:
    """The process's configuration, status and flags."""

    def __init__(
        self,
        settings: Settings,
        flags: Mapping[str, str],
        *,
        version: str,
        wall: Callable[[], float],
        paths: Callable[[], Iterable[str]],
        leading: Callable[[], str],
        features: Features = RECORDED,
    ) -> None:
        """``flags``: those of the command line; ``leading`` returns a text that says whether this process leads."""
        self._settings: Final = settings
        self._flags: Final = flags
        self._version: Final = version
        self._wall: Final = wall
        self._paths: Final = paths
        self._leading: Final = leading
        self._features: Final = features
        self._started: Final = wall()

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        return [
            web.get("/configz", self._configz),
            web.get("/statusz", self._statusz),
            web.get("/flagz", self._flagz),
        ]

    async def _configz(self, _request: web.Request) -> web.Response:
        """The effective configuration, without secrets."""
        config = {"componentconfig": to_dict(self._settings)}
        if self._settings.extension != AiokubeSchedulerConfiguration():
            config["extensionconfig"] = extension_to_dict(self._settings)
        config["rules"] = {
            "emulatedVersion": self._features.version,
            "featureGates": sorted(self._features.gates),
            "differentFrom1.36": [str(rule) for rule in self._features.changed_to(RECORDED)],
        }
        return as_json(config)

    async def _statusz(self, request: web.Request) -> web.Response:
        up = self._wall() - self._started
        paths = sorted(set(self._paths()))
        status = {
            "started": _timestamp(self._started),
            "up": str(dt.timedelta(seconds=int(up))),
            "python version": platform.python_version(),
            "binary version": self._version,
            "emulation version": self._features.version,
            "leader": self._leading(),
            "paths": " ".join(paths),
        }
        structured = {
            "startTime": dt.datetime.fromtimestamp(int(self._started), dt.UTC),
            "uptimeSeconds": int(up),
            "binaryVersion": self._version,
            "emulationVersion": self._features.version,
            "paths": paths,
        }
        return _negotiated(request, "statusz", status, structured)

    async def _flagz(self, request: web.Request) -> web.Response:
        flags = dict(sorted(self._flags.items()))
        return _negotiated(request, "flagz", flags, {"flags": flags})


def _negotiated(
    request: web.Request, page: str, pairs: Mapping[str, str], structured: Mapping[str, Any]
) -> web.Response:
    """Text, or if the client accepts it JSON or an object of config.k8s.io/v1beta1 (KEP-4827, KEP-4828)."""
    accept = request.headers.get("Accept", "").replace(" ", "")
    if "application/json" not in accept:
        lines = [f"{name}: {value}" for name, value in pairs.items()]
        return web.Response(text="\n".join(["", f"{_PROGRAM} {page}", _WARNING, "", *lines, ""]))
    kind = page.capitalize()
    if {"g=config.k8s.io", "v=v1beta1", f"as={kind}"} <= set(accept.split(",")[0].split(";")):
        identity = {"kind": kind, "apiVersion": "config.k8s.io/v1beta1"}
        return as_json({**identity, "metadata": {"name": _PROGRAM}, **structured})
    return as_json(pairs)


def as_json(value: Any) -> web.Response:
    """A JSON answer."""
    response = web.Response(body=encode(value), content_type=JSON)
    response.enable_compression()
    return response


def _timestamp(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
