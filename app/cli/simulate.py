"""The command ``simulate``: shows where a workload would go in the cluster of a dump."""

import functools
import gc
import json
import logging
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import uvloop
from rich.console import Console

from app.cli.console import console
from app.cli.flags import chosen, version_flags
from app.cli.node_flags import made_nodes, node_flags
from app.cli.process import (
    GC_WHILE_FILLING,
    PORT,
    explained,
    printable,
    printable_json,
    run_loop,
)
from app.model.features import OLDEST, FeaturesError
from app.plugins.registry import RegistryError
from app.runtime.leaping import LeapingLoop
from app.settings.problems import ConfigurationError
from app.sim import ManifestError
from app.tools.simulate.configuration import configured
from app.tools.simulate.page import as_page
from app.tools.simulate.result import SimulationResult
from app.tools.simulate.run import SimulationOptions, simulate
from app.tools.simulate.tables import as_tables, warnings
from app.tools.subprocesses import ChildFailed

PLACED, PENDING, NO_ANSWER = range(3)
"""Exit statuses."""

_PATHS: Final = functools.partial(
    click.option, type=click.Path(path_type=Path), multiple=True, metavar="PATH"
)
_FILE: Final = click.Path(path_type=Path, dir_okay=False)
_option: Final = functools.partial(click.option, show_default=True)


class _Command(click.Command):
    #: Usage errors need another status than 1, which means that pods stay pending.
    usage_status: Final = NO_ANSWER


@click.command("simulate", cls=_Command)
@_PATHS("--cluster", help="Dump of the cluster: a file or a folder; may be repeated.")
@_PATHS("--workload", required=True, help="Manifests of the workload to place; may be repeated.")
@click.option("--config", type=_FILE, help="KubeSchedulerConfiguration; all defaults without.")
@node_flags
@click.option(
    "--extenders", is_flag=True, help="Ask the extenders that have a dryRun, in that form."
)
@click.option(
    "--port", type=PORT, default=0, help="Port of the embedded API server, for extenders."
)
@_option("--timeout", type=click.FloatRange(min=1), default=120.0, metavar="SECONDS")
@_option("-o", "--output", type=click.Choice(["table", "json"]), default="table")
@click.option("--page", type=_FILE, metavar="FILE", help="Write everything to an HTML file.")
@click.pass_context
def _simulate(
    context: click.Context,
    /,
    cluster: tuple[Path, ...],
    workload: tuple[Path, ...],
    config: Path | None,
    output: str,
    page: Path | None,
    **given: Any,
) -> None:
    """Show where a workload would go in the cluster of a dump, with a configuration.

    Runs the real scheduler on an embedded cluster, both in this process, that is filled with the output of 'kubectl get
    nodes,pods,... -A -o yaml' or 'kubectl cluster-info dump'. It contacts no cluster.

    Exits with 0 if every pod of the workload gets a node, 1 if some stay pending, 2 if there is no answer.
    """
    if not cluster and not given["nodes"]:
        raise click.UsageError("give a dump with --cluster PATH, or make nodes with --nodes N")
    if page is not None and not page.absolute().parent.is_dir():
        raise click.UsageError(f"--page {page}: there is no folder {page.parent}")
    gc.set_threshold(*GC_WHILE_FILLING)
    # What the scheduler logs is not part of the answer: its reasons are.
    logging.getLogger().addHandler(logging.NullHandler())
    expected = (
        FeaturesError,
        ConfigurationError,
        RegistryError,
        ManifestError,
        ChildFailed,
        OSError,
    )
    with explained(*expected, status=NO_ANSWER):
        version, gates = chosen(given)
        options = SimulationOptions(
            version=version or OLDEST,
            gates=gates,
            cluster=cluster,
            workload=workload,
            configuration=configured(config, extenders=given["extenders"]),
            nodes=made_nodes(given),
            port=given["port"],
            timeout=given["timeout"],
        )
        errors = Console(stderr=True, highlight=False)
        # Extenders take their real time.
        loop = uvloop.new_event_loop if given["extenders"] else LeapingLoop
        answer = run_loop(simulate(options, errors), loop)
        if answer is None:
            context.exit(NO_ANSWER)
        for text in warnings(answer):
            click.secho(f"WARNING: {printable(text)}", err=True, fg="yellow", bold=True)
        if page is not None:
            page.write_text(as_page(answer, _title(cluster, workload)), encoding="utf-8")
    _show(answer, output)
    context.exit(PLACED if answer.is_placed else PENDING)


def _title(cluster: tuple[Path, ...], workload: tuple[Path, ...]) -> str:
    what, where = (", ".join(path.name for path in paths) for paths in (workload, cluster))
    return f"{what} in {where or 'a generated cluster'}"


def _show(answer: SimulationResult, output: str) -> None:
    found = msgspec.to_builtins(answer)
    if output == "json":
        click.echo(json.dumps(found, indent=2))
    else:
        console().print(as_tables(msgspec.convert(printable_json(found), SimulationResult)))


_simulate.params += list(version_flags())

command: Final = _simulate
