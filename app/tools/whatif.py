"""Asks what would happen in the cluster of a dump, or of a recording: without a running scheduler."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from app.model.features import OLDEST, Features, known_in
from app.plugins import registry
from app.runtime.clock import SystemClock
from app.runtime.distributions import entry_points
from app.scheduler.trace import SUFFIX, TraceError, files_of
from app.scheduler.whatif.answering import WhatIf
from app.scheduler.whatif.manifests import SYSTEM_PRIORITIES
from app.sim import ClusterOptions, EmbeddedCluster, KubeletOptions, ManifestError
from app.tools.in_process import InProcess
from app.tools.replay.run import state_after
from app.tools.simulate.configuration import configured
from app.tools.simulate.groups import serve_custom_groups, used_groups
from app.tools.simulate.loader import CLUSTER_KINDS, Loader, read
from app.tools.simulate.scheduling import standing_by
from app.wire.whatif_v1 import WhatIfAnswer, WhatIfQuestion

#: The kubelets of the embedded cluster do nothing: a question sees the cluster as it was dumped.
_IDLE: Final = KubeletOptions(start_delay=3600.0)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class DumpOptions:
    """What a question is asked about, instead of a running scheduler."""

    dump: tuple[Path, ...]
    """As simulate reads it; or the directory of one recording, or a file of it."""
    config: Path | None = None
    """The configuration, for a dump; a recording has its own."""
    version: str = OLDEST
    gates: Mapping[str, bool] = dataclasses.field(default_factory=dict)


def is_recording(paths: tuple[Path, ...]) -> bool:
    """Whether the paths name a recording."""
    if len(paths) != 1:
        return False
    try:
        files = files_of(paths[0])
    except TraceError:
        return False
    return files[0].name.endswith(SUFFIX)


async def ask_dump(options: DumpOptions, question: WhatIfQuestion) -> WhatIfAnswer:
    """The answer. Raises RefusedError, ManifestError, TraceError, ConfigurationError, RegistryError, PluginError."""
    if is_recording(options.dump):
        return await _ask_recording(options.dump[0], question)
    dump = read(options.dump, CLUSTER_KINDS)
    if not any(dump.of("Node")):
        raise ManifestError("the cluster has no nodes: dump them too (kubectl get nodes,pods,...)")
    used = used_groups(each.value for each in dump.objects)
    configuration = configured(options.config, extenders=False)
    settings = ClusterOptions(
        listen=False, kubelets=_IDLE, volumes=True, claims=True, features=used.features
    )
    clock = SystemClock()
    async with EmbeddedCluster(settings, now=clock.wall) as cluster:
        if used.custom:
            serve_custom_groups(cluster)
        Loader(cluster, configuration.schedulers).load_cluster(dump)
        gates = known_in(options.version, dict.fromkeys(used.features.gates, True))
        features = Features.of(options.version, gates | dict(options.gates))
        transport = InProcess(cluster)
        async with standing_by(configuration.settings, transport, clock, features=features) as (
            standby,
            _,
        ):
            return await standby.parts.whatif.ask(question)


async def _ask_recording(trace: Path, question: WhatIfQuestion) -> WhatIfAnswer:
    classes = registry.registry(entry_points(group=registry.GROUP))
    world = state_after(trace, classes)

    async def priorities() -> Mapping[str, int]:
        return SYSTEM_PRIORITIES

    whatif = WhatIf(
        world.state,
        world.profiles,
        classes,
        features=world.features,
        clock=SystemClock(),
        seed=0,
        priorities=priorities,
    )
    try:
        answer = await whatif.ask(question)
    finally:
        whatif.close()
    return msgspec.structs.replace(answer, at=world.clock.now)
