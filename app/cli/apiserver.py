"""The command ``apiserver``: runs the embedded cluster alone."""

import asyncio
import functools
import gc
import signal
from pathlib import Path
from typing import Any, Final

import click

from app.cli.node_flags import made_nodes, node_flags
from app.cli.process import GC_WHILE_FILLING, PORT, explained, run_loop
from app.model.gates import VERSIONS as KUBERNETES
from app.runtime import logs
from app.sim import (
    ClusterOptions,
    EmbeddedCluster,
    KubeletOptions,
    ManifestError,
    serve,
)
from app.sim.features import GATES, VERSIONS, parse_features

_KUBELETS: Final = KubeletOptions()

_option: Final = functools.partial(click.option, show_default=True)


@click.command("apiserver")
@_option("--host", default="127.0.0.1", help="Address to listen on.")
@click.option(
    "--allowed-host",
    multiple=True,
    metavar="NAME",
    help="Further host name in requests, with a dot in it; may be repeated.",
)
@_option("--port", type=PORT, default=8080, help="Port to listen on; 0 takes any free one.")
@node_flags
@click.option(
    "--load",
    type=click.Path(path_type=Path, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Manifest (YAML or JSON, lists too) to apply at the start; may be repeated.",
)
@click.option(
    "--kubeconfig-out",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write a kubeconfig for kubectl.",
)
@_option("--kubelets/--no-kubelets", default=True, help="Pretend to run bound pods.")
@_option("--start-delay", default=_KUBELETS.start_delay, help="Seconds until a bound pod runs.")
@_option("--volumes/--no-volumes", default=True, help="Pretend to make and bind volumes.")
@_option("--claims/--no-claims", default=True, help="Pretend to make and free device claims.")
@_option("--workloads/--no-workloads", default=True, help="Make the pods of Deployments and so on.")
@_option(
    "--grace-factor", default=_KUBELETS.grace_factor, help="Part of its grace that a pod takes."
)
@click.option(
    "--feature-gates",
    multiple=True,
    metavar="NAME=true,...",
    help=f"Feature gates to switch on: {', '.join(GATES)}.",
)
@click.option(
    "--runtime-config",
    multiple=True,
    metavar="GROUP/VERSION=true",
    help=f"Version of the API to switch on: {' or '.join(VERSIONS)}.",
)
@click.option(
    "--emulated-version",
    type=click.Choice(KUBERNETES),
    default=KUBERNETES[0],
    show_default=True,
    help="The version of Kubernetes that it is: what it says and which kinds it serves, which schedulers follow.",
)
@click.option("--debug", is_flag=True, help="Serve /debug/cluster/: faults and cuts on demand.")
def _apiserver(
    *,
    host: str,
    allowed_host: tuple[str, ...],
    port: int,
    load: tuple[Path, ...],
    kubeconfig_out: Path | None,
    kubelets: bool,
    volumes: bool,
    claims: bool,
    workloads: bool,
    start_delay: float,
    grace_factor: float,
    feature_gates: tuple[str, ...],
    runtime_config: tuple[str, ...],
    emulated_version: str,
    debug: bool,
    **given: Any,
) -> None:
    """Run the embedded cluster: an API server in memory, with kubelets that only pretend.

    kubectl and client libraries can talk to it. Everything is allowed, nothing is kept.
    """
    logs.configure()
    try:
        features = parse_features(feature_gates, runtime_config, emulated_version)
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    options = ClusterOptions(
        host=host,
        hosts=allowed_host,
        port=port,
        nodes=made_nodes(given),
        load=load,
        kubelets=KubeletOptions(start_delay=start_delay, grace_factor=grace_factor)
        if kubelets
        else None,
        volumes=volumes,
        claims=claims,
        workloads=workloads,
        features=features,
        kubeconfig_out=kubeconfig_out,
        debug=debug,
    )
    gc.set_threshold(*GC_WHILE_FILLING)
    with explained(ManifestError, OSError):
        run_loop(_serve_until_signalled(options))


command: Final = _apiserver


async def _serve_until_signalled(options: ClusterOptions) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve(options, ready=_announce, stop=stop)


def _announce(cluster: EmbeddedCluster) -> None:
    click.echo(f"listening on {cluster.url}")
    file = cluster.options.kubeconfig_out
    click.echo(
        f"kubectl --kubeconfig {file} get nodes" if file else f"kubectl -s {cluster.url} get nodes"
    )
    gc.freeze()  # objects made at the start are excluded from garbage collections
