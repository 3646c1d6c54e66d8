"""``python -m tests.bench.server``: the embedded cluster under a benchmark, filled in its own process before it
listens.
"""

import asyncio
import gc
import signal
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from app.cli.process import run_loop
from app.sim import ClusterOptions, EmbeddedCluster
from app.sim.api import Api
from app.sim.features import parse_features
from app.sim.kubeconfig import write_kubeconfig
from app.sim.objects import new_uid
from app.sim.resources.kinds import PODS
from app.sim.store import Object
from tests.bench import workload

_encode: Final = msgspec.json.Encoder().encode
_GC_WHILE_FILLING: Final = (2_000_000, 20, 100)


@click.command()
@click.option("--kubeconfig-out", type=click.Path(path_type=Path), required=True)
@click.option(
    "--load", "load_json", required=True, help="The fields of tests.bench.measuring.Load."
)
def main(kubeconfig_out: Path, load_json: str) -> None:
    """Fill an embedded cluster without kubelets, then serve it until a signal."""
    gc.set_threshold(*_GC_WHILE_FILLING)
    run_loop(_serve(kubeconfig_out, msgspec.json.decode(load_json)))


async def _serve(kubeconfig_out: Path, load: dict[str, Any]) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    gangs = workload.Gangs(*load.pop("gangs"))
    gates = gangs.gates(load["shape"])
    options = ClusterOptions(
        claims=load["shape"] == "dra",
        keep_budgets=False,
        features=parse_features([gates], [f"{workload.GROUP_VERSION}=true"] if gates else []),
    )
    async with EmbeddedCluster(options) as cluster:
        fill(cluster.api, **load, gangs=gangs)
        gc.freeze()
        write_kubeconfig(kubeconfig_out, cluster.url)
        click.echo(f"listening on {cluster.url}")
        await stop.wait()


def fill(
    api: Api,
    *,
    shape: str,
    nodes: int,
    pods: int,
    backlog: int,
    existing: int,
    apart_every: int,
    zones: int,
    padding: int,
    gangs: workload.Gangs,
) -> None:
    """Creates what a round needs. Running pods beyond the first of a kind are copies of it, without admission."""
    _create(api, workload.surroundings(shape, nodes=nodes, pods=pods, gangs=gangs))
    _create(
        api,
        (
            workload.node(n, zones=zones, shape=shape, padding=padding, gangs=gangs)
            for n in range(nodes)
        ),
    )
    _copy(
        api,
        (
            workload.existing_pod(n, nodes=nodes, shape=shape, apart_every=apart_every)
            for n in range(existing)
        ),
    )
    _create(api, (workload.measured_pod(n, shape, gangs) for n in range(backlog)))


def _create(api: Api, objects: Iterable[Object]) -> None:
    for value in objects:
        kind = api.kinds.by_type[value["apiVersion"], value["kind"]]
        api.create(kind, value["metadata"].get("namespace", ""), value)


def _copy(api: Api, pods: Iterable[Object]) -> None:
    first: dict[bytes, Object] = {}
    for pod in pods:
        spec = pod["spec"]
        node = spec.pop("nodeName")
        kind = _encode(spec)
        known = first.get(kind)
        if known is None:
            spec["nodeName"] = node
            first[kind] = api.create(PODS, pod["metadata"]["namespace"], pod).value
            continue
        metadata = known["metadata"] | pod["metadata"] | {"uid": new_uid()}
        api.write(PODS, known | {"metadata": metadata, "spec": known["spec"] | {"nodeName": node}})


if __name__ == "__main__":
    sys.exit(main())
