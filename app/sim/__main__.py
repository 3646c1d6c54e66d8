"""``python -m app.sim``: the embedded cluster alone, in a process of its own."""

import argparse
import asyncio
import gc
import signal
import sys
from pathlib import Path

import uvloop

from app.sim import (
    ClusterOptions,
    EmbeddedCluster,
    KubeletOptions,
    ManifestError,
    NodeOptions,
    serve,
)


def _parser() -> argparse.ArgumentParser:
    defaults = NodeOptions()
    kubelets = KubeletOptions()
    parser = argparse.ArgumentParser(prog="python -m app.sim", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes any free port")
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="nodes to make")
    parser.add_argument("--zones", type=int, default=defaults.zones)
    parser.add_argument("--node-cpu", default=defaults.cpu)
    parser.add_argument("--node-memory", default=defaults.memory)
    parser.add_argument("--node-pods", default=defaults.pods)
    parser.add_argument("--load", type=Path, action="append", default=[], metavar="FILE")
    parser.add_argument("--kubeconfig-out", type=Path, metavar="FILE")
    parser.add_argument("--no-kubelets", action="store_true", help="bound pods stay Pending")
    parser.add_argument("--start-delay", type=float, default=kubelets.start_delay, metavar="S")
    parser.add_argument("--grace-factor", type=float, default=kubelets.grace_factor)
    parser.add_argument("--debug", action="store_true", help="serve /debug/cluster/")
    return parser


def _options(arguments: argparse.Namespace) -> ClusterOptions:
    kubelets = KubeletOptions(
        start_delay=arguments.start_delay, grace_factor=arguments.grace_factor
    )
    return ClusterOptions(
        host=arguments.host,
        port=arguments.port,
        nodes=NodeOptions(
            count=arguments.nodes,
            zones=arguments.zones,
            cpu=arguments.node_cpu,
            memory=arguments.node_memory,
            pods=arguments.node_pods,
        ),
        load=tuple(arguments.load),
        kubelets=None if arguments.no_kubelets else kubelets,
        kubeconfig_out=arguments.kubeconfig_out,
        debug=arguments.debug,
    )


def _announce(cluster: EmbeddedCluster) -> None:
    sys.stdout.write(f"listening on {cluster.url}\n")
    sys.stdout.flush()
    gc.freeze()


async def _main(options: ClusterOptions) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await serve(options, ready=_announce, stop=stop)


def main() -> int:
    """Runs until SIGINT or SIGTERM. Returns the exit code: 1 if it could not start."""
    options = _options(_parser().parse_args())
    gc.set_threshold(50_000, 20, 100)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_main(options))
    except (ManifestError, OSError) as error:
        sys.stderr.write(f"error: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
