"""The embedded cluster: store, API, server and the parties that only pretend, started and stopped together."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol, Self

from app.sim.api import Api
from app.sim.clock import wall_clock
from app.sim.errors import ApiError
from app.sim.http.debug import DebugSurface
from app.sim.http.faults import Faults
from app.sim.http.handlers import Handlers
from app.sim.http.server import Server, WatchLimits
from app.sim.kubeconfig import write_kubeconfig
from app.sim.manifests import ManifestError, read_manifests
from app.sim.parties.claims import ClaimController
from app.sim.parties.devices import DRIVER, SliceKeeper, device_class, make_slices
from app.sim.parties.disruption import DisruptionController
from app.sim.parties.ephemeral import EphemeralClaims
from app.sim.parties.housekeeping import EventExpiry, NamespaceSweeper
from app.sim.parties.kubelet import KubeletOptions, Kubelets
from app.sim.parties.nodes import NodeOptions, make_nodes
from app.sim.parties.volumes import VolumeController
from app.sim.resources.kinds import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PRIORITY_CLASSES,
    RESOURCE_SLICES,
    Kind,
)
from app.sim.resources.priority import system_priority_classes
from app.sim.resources.reviews import ADMIN, ADMIN_TOKEN, Reviewer
from app.sim.store import Object, Record

logger = logging.getLogger(__name__)

_NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")


class _Party(Protocol):
    """Someone who does a part of what happens in a cluster."""

    def start(self) -> None:
        """Begins. Needs a running loop."""

    def stop(self) -> None:
        """Ends, leaving everything as it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """Everything about an embedded cluster that can be chosen."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 takes any free port."""
    nodes: NodeOptions = field(default_factory=NodeOptions)
    load: tuple[Path, ...] = ()
    """Manifests applied at the start, in this order."""
    kubelets: KubeletOptions | None = None
    """None: bound pods stay Pending and deleted ones stay until they are deleted with no grace."""
    keep_budgets: bool = True
    """Work out the status of PodDisruptionBudgets that were created without one."""
    volumes: bool = False
    """Bind claims, and make up volumes for them; without, claims stay as they are."""
    claims: bool = False
    """Make device claims from templates, and free those whose pods have ended; without, claims stay as they are."""
    kubeconfig_out: Path | None = None
    history_limit: int = 10_000
    """Changes remembered per resource; a watch that resumes further back gets 410."""
    watch: WatchLimits = field(default_factory=WatchLimits)
    event_ttl: float = 3600.0
    """Seconds after which an event is forgotten."""
    tokens: Mapping[str, str] = field(default_factory=lambda: {ADMIN_TOKEN: ADMIN})
    """Bearer tokens that TokenReviews know: token -> user. Requests need none."""
    debug: bool = False
    """Serve ``/debug/cluster/``: faults, cuts and compaction over HTTP."""


class EmbeddedCluster:
    """An API server over HTTP within this process.

    ``async with EmbeddedCluster(ClusterOptions(...)) as cluster`` starts it; ``cluster.url`` is its address and
    ``cluster.api`` the objects behind it. ``now`` gives the wall clock of all timestamps; delays are the loop's.
    """

    def __init__(
        self, options: ClusterOptions | None = None, *, now: Callable[[], float] = wall_clock
    ) -> None:
        self.options = options or ClusterOptions()
        self.api = Api(now=now, history_limit=self.options.history_limit)
        self.faults = Faults()
        self.port = 0
        handlers = Handlers(self.api, Reviewer(self.options.tokens))
        self._server = Server(
            self.api,
            handlers,
            faults=self.faults,
            limits=self.options.watch,
            extra=DebugSurface(self) if self.options.debug else None,
        )
        self._parties = self._make_parties()
        self._reopening: asyncio.Task[None] | None = None

    def _make_parties(self) -> list[_Party]:
        parties: list[_Party] = [
            NamespaceSweeper(self.api),
            EventExpiry(self.api, ttl=self.options.event_ttl),
            SliceKeeper(self.api),
        ]
        if self.options.keep_budgets:
            parties.append(DisruptionController(self.api))
        if self.options.volumes:
            parties += [EphemeralClaims(self.api), VolumeController(self.api)]
        if self.options.claims:
            parties.append(ClaimController(self.api))
        if self.options.kubelets is not None:
            parties.append(Kubelets(self.api, self.options.kubelets))
        return parties

    @property
    def url(self) -> str:
        host = self.options.host
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}"

    @property
    def watcher_count(self) -> int:
        """Watches that are open."""
        return self._server.watcher_count

    async def start(self) -> None:
        """Makes what every cluster has, loads what was asked for and listens. Raises ManifestError or OSError."""
        for name in _NAMESPACES:
            self.api.create(NAMESPACES, "", {"metadata": {"name": name}})
        for priority_class in system_priority_classes():
            self.api.create(PRIORITY_CLASSES, "", priority_class)
        self.add_nodes(self.options.nodes)
        self.load_files(self.options.load)
        self.port = await self._server.start(self.options.host, self.options.port)
        for party in self._parties:
            party.start()
        if self.options.kubeconfig_out is not None:
            write_kubeconfig(self.options.kubeconfig_out, self.url)

    async def stop(self) -> None:
        """Ends all watches and connections."""
        if self._reopening is not None:
            self._reopening.cancel()
        for party in self._parties:
            party.stop()
        await self._server.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.stop()

    def add_nodes(self, options: NodeOptions) -> None:
        """Makes nodes and their devices. Raises ApiError if one exists."""
        if options.devices and self.api.find(DEVICE_CLASSES, "", DRIVER) is None:
            self.api.create(DEVICE_CLASSES, "", device_class())
        for node in make_nodes(options, timestamp=self.api.timestamp()):
            record = self.api.create(NODES, "", node)
            for part in make_slices(record.value, options.devices):
                self.api.create(RESOURCE_SLICES, "", part)

    def load_files(self, paths: Iterable[Path]) -> None:
        """Applies manifests, creating or replacing; statuses are taken over too. Raises ManifestError."""
        for path in paths:
            for kind, value in read_manifests(path):
                try:
                    self.apply(kind, value)
                except ApiError as error:
                    raise ManifestError(f"{path}: {error.message}") from error

    def apply(self, kind: Kind, value: Object) -> Record:
        """Creates or replaces an object together with its status, as restoring a dump needs. Raises ApiError."""
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
        """The namespace of an object from a file, made if it does not exist."""
        if not kind.namespaced:
            return ""
        namespace = (value.get("metadata") or {}).get("namespace") or "default"
        if self.api.find(NAMESPACES, "", namespace) is None:
            self.api.create(NAMESPACES, "", {"metadata": {"name": namespace}})
        return str(namespace)

    def compact(self) -> None:
        """Forgets all history: resuming watches and list pages get 410."""
        self.api.store.compact()

    def cut_connections(self) -> int:
        """Aborts every open connection; returns how many there were."""
        return self._server.cut_connections()

    def refuse_connections(self, seconds: float) -> None:
        """Cuts every connection and accepts none for this long, like a server that is down."""
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
