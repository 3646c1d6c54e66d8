"""The command line: arguments in, settings and an exit status out."""

import asyncio
import logging
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import click
import uvloop

from app.extender.config import ExtenderConfigError
from app.kube.errors import ConfigurationError as ConnectionSettingsError
from app.runtime import logs
from app.runtime.main import run as run_scheduler
from app.runtime.options import RunOptions
from app.runtime.profiles import PluginError
from app.settings.load import load
from app.settings.problems import ConfigurationError

log = logging.getLogger(__name__)


def _run(coroutine: Coroutine[Any, Any, int]) -> int:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(coroutine)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="aiokube-scheduler", prog_name="aiokube-scheduler")
def main() -> None:
    """A Kubernetes scheduler: kube-scheduler's decisions, faster, and at its best with extenders."""


@main.command()
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="KubeSchedulerConfiguration file.",
)
@click.option(
    "--kubeconfig", default="", help="Path of a kubeconfig, if the configuration names none."
)
@click.option("--master", default="", help="Address of the API server; overrides the kubeconfig's.")
@click.option("-v", "--v", "verbosity", default=0, show_default=True, help="Log verbosity.")
@click.option(
    "--logging-format", type=click.Choice(["text", "json"]), default="text", show_default=True
)
def run(
    config: Path | None, kubeconfig: str, master: str, verbosity: int, logging_format: str
) -> None:
    """Run the scheduler."""
    logs.configure(logging_format=logging_format, verbosity=verbosity)
    options = RunOptions(config=config, kubeconfig=kubeconfig, master=master, verbosity=verbosity)
    try:
        loaded = load(config if config is not None else _DEFAULTS)
        for warning in loaded.warnings:
            log.warning("%s", warning)
        status = _run(run_scheduler(loaded, options))
    except (ConfigurationError, ConnectionSettingsError, ExtenderConfigError, PluginError) as error:
        log.error("command failed: %s", error)
        status = 1
    sys.exit(status)


_DEFAULTS = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
