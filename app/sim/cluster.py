"""The embedded cluster: store, API, HTTP server and controllers, started and stopped together."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import msgspec
from aiohttp import web

from app.sim.api import Api
from app.sim.clock import wall_clock
from app.sim.controllers.controller import Controller
from app.sim.controllers.custom_resources import CustomResourceController
from app.sim.controllers.disruption import DisruptionController
from app.sim.controllers.garbage_collection import (
    EventExpiry,
    GarbageCollector,
    NamespaceController,
)
from app.sim.controllers.kubelet import KubeletOptions, Kubelets
from app.sim.controllers.namespaces import (
    NamespaceContentsController,
    ResourceQuotaController,
)
from app.sim.controllers.persistent_volumes import (
    EphemeralVolumeController,
    PersistentVolumeController,
    default_storage_class,
)
from app.sim.controllers.pod_groups import PodGroupProtectionController
from app.sim.controllers.resource_claims import ResourceClaimController
from app.sim.controllers.workloads.controller import RULES, WorkloadController
from app.sim.errors import ApiError, bad_request
from app.sim.features import NO_FEATURES, ServedFeatures
from app.sim.http.faults import Fault, Faults
from app.sim.http.handlers import Handlers, json_response
from app.sim.http.server import Server, UnsentCall, WatchLimits
from app.sim.http.watch import Watcher
from app.sim.kubeconfig import merged_kubeconfig, write_kubeconfig
from app.sim.manifests import ManifestError, read_manifests
from app.sim.nodes import DRIVER, NodeOptions, device_class, make_nodes, make_slices
from app.sim.resources.kinds import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    POD_GROUPS,
    PRIORITY_CLASSES,
    RESOURCE_SLICES,
    STORAGE_CLASSES,
    Kind,
)
from app.sim.resources.priority import system_priority_classes
from app.sim.resources.reviews import ADMIN, ADMIN_TOKEN, Reviewer
from app.sim.store import Object, Record

logger = logging.getLogger(__name__)

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """The options of an embedded cluster."""

    host: str = "127.0.0.1"
    listen: bool = True
    """Serve it over HTTP; otherwise only this process reaches it."""
    port: int = 0
    """0 means any free port."""
    hosts: tuple[str, ...] = ()
    """Names under which the server may be asked for, beside addresses, its ``host`` and names that nobody can register.
    """
    nodes: NodeOptions = field(default_factory=NodeOptions)
    load: tuple[Path, ...] = ()
    """Manifests applied at the start, in this order."""
    kubelets: KubeletOptions | None = None
    """None: bound pods stay Pending, and deleted pods stay until they are deleted without a grace period."""
    keep_budgets: bool = True
    """Run the disruption controller, for budgets that were created without a status."""
    volumes: bool = False
    """Run the controllers of volumes: create, bind and provision for PersistentVolumeClaims."""
    claims: bool = False
    """Run the controller of ResourceClaims: create them from templates, and deallocate those whose pods have ended."""
    workloads: bool = False
    """Run the controllers of Deployments, StatefulSets, DaemonSets, Jobs and the like, which create their pods, of
    service accounts and of quotas, and have a default StorageClass."""
    features: ServedFeatures = NO_FEATURES
    """Feature gates and versions of the API that are switched on."""
    kubeconfig_out: Path | None = None
    history_limit: int = 10_000
    """Changes kept per resource. A watch that resumes from an older one gets 410."""
    watch: WatchLimits = field(default_factory=WatchLimits)
    event_ttl: float = 3600.0
    """Seconds after which an event is removed."""
    tokens: Mapping[str, str] = field(default_factory=lambda: {ADMIN_TOKEN: ADMIN})
    """Bearer tokens that TokenReviews accept: token -> user. Requests need none."""
    debug: bool = False
    """Serve ``/debug/cluster/``: faults, broken connections and compaction over HTTP."""


class EmbeddedCluster:
    """An API server within this process, over HTTP unless it does not ``listen``.

    ``async with EmbeddedCluster(ClusterOptions(...)) as cluster`` starts it; ``cluster.url`` is its address and
    ``cluster.api`` the objects behind it. ``now`` gives the wall clock of all timestamps; delays are the loop's.
    """

    def __init__(
        self, options: ClusterOptions | None = None, *, now: Callable[[], float] = wall_clock
    ) -> None:
        self.options = options or ClusterOptions()
        self.api = Api(
            now=now, history_limit=self.options.history_limit, features=self.options.features
        )
        self.faults = Faults()
        self.port = 0
        workloads = () if self.options.workloads else tuple(kind.kind for kind in RULES)
        handlers = Handlers(self.api, Reviewer(self.options.tokens), idle={*workloads, "CronJob"})
        self._server = Server(
            self.api,
            handlers,
            faults=self.faults,
            limits=self.options.watch,
            hosts=(self.options.host, *self.options.hosts),
            extra=DebugSurface(self) if self.options.debug else None,
        )
        self._controllers = self._make_controllers()
        self._reopening: asyncio.Task[None] | None = None

    def _make_controllers(self) -> list[Controller[Any]]:
        controllers: list[Controller[Any]] = [
            CustomResourceController(self.api),
            NamespaceController(self.api),
            EventExpiry(self.api, ttl=self.options.event_ttl),
            GarbageCollector(self.api),
        ]
        groups = self.api.kinds.by_storage.get(POD_GROUPS)
        if groups is not None:
            controllers.append(PodGroupProtectionController(self.api, groups))
        if self.options.keep_budgets:
            controllers.append(DisruptionController(self.api))
        if self.options.volumes:
            controllers += [
                EphemeralVolumeController(self.api),
                PersistentVolumeController(self.api),
            ]
        if self.options.claims:
            controllers.append(ResourceClaimController(self.api))
        if self.options.workloads:
            controllers += [
                NamespaceContentsController(self.api),
                ResourceQuotaController(self.api),
                WorkloadController(self.api),
            ]
        if self.options.kubelets is not None:
            controllers.append(Kubelets(self.api, self.options.kubelets))
        return controllers

    @property
    def url(self) -> str:
        host = self.options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def watcher_count(self) -> int:
        """The number of open watches."""
        return self._server.watcher_count

    async def start(self) -> None:
        """Creates the objects that every cluster has, loads the manifests and listens.

        Raises ManifestError or OSError.
        """
        if self.options.kubeconfig_out is not None:
            merged_kubeconfig(self.options.kubeconfig_out, "")  # refused before anything is done
        for name in _NAMESPACES:
            self.api.create(NAMESPACES, "", {"metadata": {"name": name}})
        for priority_class in system_priority_classes():
            self.api.create(PRIORITY_CLASSES, "", priority_class)
        if self.options.workloads and self.options.volumes:
            self.api.create(STORAGE_CLASSES, "", default_storage_class())
        self.add_nodes(self.options.nodes)
        definitions, *others = self._controllers
        definitions.start()
        self.load_files(self.options.load)
        if self.options.listen:
            self.port = await self._server.start(self.options.host, self.options.port)
        for controller in others:
            controller.start()
        if self.options.kubeconfig_out is not None:
            write_kubeconfig(self.options.kubeconfig_out, self.url)

    async def stop(self) -> None:
        """Ends all watches and connections."""
        if self._reopening is not None:
            self._reopening.cancel()
        for controller in self._controllers:
            controller.stop()
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def answer(self, call: UnsentCall) -> web.Response:
        """The answer to a request of this process, which is no watch; also if the cluster does not listen."""
        return self._server.answer(call)

    def watching(self, path: str, query: Mapping[str, str]) -> AbstractContextManager[Watcher]:
        """A watch of this process, for the length of the block. Raises ApiError."""
        return self._server.watching(path, query)

    def add_nodes(self, options: NodeOptions) -> None:
        """Creates nodes and their devices. Raises ApiError if one exists."""
        if options.devices and self.api.find(DEVICE_CLASSES, "", DRIVER) is None:
            self.api.create(DEVICE_CLASSES, "", device_class())
        for node in make_nodes(options, timestamp=self.api.timestamp()):
            record = self.api.create(NODES, "", node)
            for part in make_slices(record.value, options.devices):
                self.api.create(RESOURCE_SLICES, "", part)

    def load_files(self, paths: Iterable[Path]) -> None:
        """Creates or replaces the objects of manifests, with their status. Raises ManifestError."""
        for path in paths:
            for kind, value in read_manifests(path, self.api.kinds.by_type):
                try:
                    self.apply(kind, value)
                except ApiError as error:
                    raise ManifestError(f"{path}: {error.message}") from error

    def apply(self, kind: Kind, value: Object) -> Record:
        """Creates or replaces an object with its status. Raises ApiError."""
        metadata = {
            name: part
            for name, part in (value.get("metadata") or {}).items()
            if name not in ("uid", "resourceVersion", "namespace")
        }
        namespace = self._namespace_of(kind, value)
        value = value | {"metadata": metadata}
        name = metadata.get("name", "")
        if name and self.api.find(kind, namespace, name) is not None:
            record = self.api.update(kind, namespace, name, value)[0]
        else:
            record = self.api.create(kind, namespace, value)
        if kind.has_status and value.get("status"):
            value = value | {"metadata": metadata | {"name": record.name}}
            record = self.api.update(kind, namespace, record.name, value, subresource="status")[0]
        return record

    def restore(self, kind: Kind, value: Object) -> Record:
        """Creates or replaces an object as it was in another cluster (see Api.restore). Raises ApiError."""
        return self.api.restore(kind, self._namespace_of(kind, value), value)

    def _namespace_of(self, kind: Kind, value: Object) -> str:
        """The namespace of an object from a file. Creates it if it does not exist."""
        if not kind.namespaced:
            return ""
        namespace = (value.get("metadata") or {}).get("namespace") or "default"
        if self.api.find(NAMESPACES, "", namespace) is None:
            self.api.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        return str(namespace)

    def compact(self) -> None:
        """Drops all history: watches that resume and further pages of lists get 410."""
        self.api.store.compact()

    def cut_connections(self) -> int:
        """Aborts every open connection. Returns their number."""
        return self._server.cut_connections()

    def refuse_connections(self, seconds: float) -> None:
        """Aborts every connection and accepts none for some seconds, like a server that is down."""
        self._server.stop_listening()
        self._server.cut_connections()
        if self._reopening is not None:
            self._reopening.cancel()
        self._reopening = asyncio.create_task(self._reopen(seconds), name="sim-reopen")

    async def _reopen(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        try:
            await self._server.listen(self.options.host, self.port)
        except OSError:
            logger.exception("Cannot listen on %s again", self.url)


async def serve(
    options: ClusterOptions,
    *,
    ready: Callable[[EmbeddedCluster], None] | None = None,
    stop: asyncio.Event | None = None,
) -> None:
    """Runs an embedded cluster until ``stop`` is set or the task is cancelled.

    ``ready`` is called once the server listens. Raises ManifestError or OSError if it cannot start.
    """
    async with EmbeddedCluster(options) as cluster:
        if ready is not None:
            ready(cluster)
        await (stop or asyncio.Event()).wait()


_ROOT: Final = "/debug/cluster"


class DebugSurface:
    """Answers requests below ``/debug/cluster``, for tests whose cluster runs in a process of its own.

    ======  =========================  ===================================================
    method  path                       does
    ======  =========================  ===================================================
    POST    /debug/cluster/faults      activates a fault (the fields of ``Fault``)
    DELETE  /debug/cluster/faults      removes all faults; requests that wait for one continue
    POST    /debug/cluster/cut         aborts every connection, also this one
    POST    /debug/cluster/refuse      aborts, and refuses connections for ``{"seconds": n}``
    POST    /debug/cluster/compact     drops the history of changes
    GET     /debug/cluster             counts: revision, watchers, objects by resource
    ======  =========================  ===================================================
    """

    def __init__(self, cluster: EmbeddedCluster) -> None:
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
