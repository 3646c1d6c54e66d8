"""``/metrics``, ``/metrics/resources``, ``/metrics/slis``, ``/configz``, ``/statusz`` and ``/flagz``."""

import asyncio
import contextlib
import datetime as dt
import platform
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from app.model.pod import Pod
from app.observe.metrics.resources import pod_resource_metrics
from app.observe.metrics.series import CONTENT_TYPE, Families, exposition
from app.settings.dump import extension_to_dict, to_dict
from app.settings.extension import AiokubeSchedulerConfiguration
from app.settings.load import Settings

#: The kube-scheduler whose behaviour this is.
EMULATED: Final = "1.36"
_PROGRAM: Final = "aiokube-scheduler"
_WARNING: Final = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is "
    "for debugging purposes only."
)


class MetricsPages:
    """The metrics of the process, of its health checks, and of the pods."""

    def __init__(
        self,
        registry: CollectorRegistry,
        slis: CollectorRegistry,
        families: Families,
        pods: Callable[[], Sequence[Pod]],
    ) -> None:
        """``pods``: those to tell resources of; none on a standby."""
        self._registry: Final = registry
        self._slis: Final = slis
        self._families: Final = families
        self._pods: Final = pods

    def routes(self) -> list[web.RouteDef]:
        """The pages."""
        return [
            web.get("/metrics", self._metrics),
            web.delete("/metrics", self._reset),
            web.get("/metrics/slis", self._slis_page),
            web.get("/metrics/resources", self._resources),
        ]

    async def _metrics(self, _request: web.Request) -> web.Response:
        return await _exposed(self._registry)

    async def _slis_page(self, _request: web.Request) -> web.Response:
        return await _exposed(self._slis)

    async def _reset(self, _request: web.Request) -> web.Response:
        self._families.reset()
        return web.Response(text="metrics reset\n")

    async def _resources(self, request: web.Request) -> web.StreamResponse:
        return await streamed(request, pod_resource_metrics(self._pods()), CONTENT_TYPE)


async def _exposed(registry: CollectorRegistry) -> web.Response:
    body = await exposition(registry)
    response = web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
    response.enable_compression()
    return response


async def streamed(
    request: web.Request, parts: Iterable[bytes], content_type: str
) -> web.StreamResponse:
    """A long answer, piece by piece; other tasks have their turn in between."""
    headers = {"Content-Type": content_type, "Cache-Control": "no-cache, private"}
    response = web.StreamResponse(headers=headers)
    response.enable_compression()
    await response.prepare(request)
    with contextlib.suppress(ConnectionResetError):
        for part in parts:
            await response.write(part)
            await asyncio.sleep(0)
        await response.write_eof()
    return response


class AboutPages:
    """What this process is and how it is set up."""

    def __init__(
        self,
        settings: Settings,
        flags: Mapping[str, str],
        *,
        version: str,
        wall: Callable[[], float],
        paths: Callable[[], Iterable[str]],
        leading: Callable[[], str],
    ) -> None:
        """``flags``: the command line's; ``leading`` tells in words whether this process leads."""
        self._settings: Final = settings
        self._flags: Final = flags
        self._version: Final = version
        self._wall: Final = wall
        self._paths: Final = paths
        self._leading: Final = leading
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
        return as_json(config)

    async def _statusz(self, request: web.Request) -> web.Response:
        up = self._wall() - self._started
        paths = sorted(set(self._paths()))
        status = {
            "started": _timestamp(self._started),
            "up": str(dt.timedelta(seconds=int(up))),
            "python version": platform.python_version(),
            "binary version": self._version,
            "emulation version": EMULATED,
            "leader": self._leading(),
            "paths": " ".join(paths),
        }
        structured = {
            "startTime": dt.datetime.fromtimestamp(int(self._started), dt.UTC),
            "uptimeSeconds": int(up),
            "binaryVersion": self._version,
            "emulationVersion": EMULATED,
            "paths": paths,
        }
        return _told(request, "statusz", status, structured)

    async def _flagz(self, request: web.Request) -> web.Response:
        flags = dict(sorted(self._flags.items()))
        return _told(request, "flagz", flags, {"flags": flags})


def _told(
    request: web.Request, page: str, pairs: Mapping[str, str], structured: Mapping[str, Any]
) -> web.Response:
    """As text for people; as JSON for those who ask for it, or as an object of config.k8s.io/v1beta1 (KEP-4827, KEP-4828)."""
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
    response = web.Response(body=msgspec.json.encode(value), content_type="application/json")
    response.enable_compression()
    return response


def _timestamp(seconds: float) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%a %b %d %H:%M:%S UTC %Y")
