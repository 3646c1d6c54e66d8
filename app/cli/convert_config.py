"""The command ``convert-config``: writes a scheduler policy, or a configuration of an older version, as v1."""

from typing import Final

import click
import yaml

from app.cli.check_config import STDIN, content
from app.cli.process import explained
from app.plugins import registry
from app.runtime.distributions import entry_points
from app.settings.check import Checked, problems_as_text
from app.settings.load import convert_text, decode_text
from app.settings.problems import ConfigurationError


@click.command("convert-config")
@click.argument("file", metavar="FILE")
@click.pass_context
def _convert_config(context: click.Context, file: str) -> None:
    """Write FILE as kubescheduler.config.k8s.io/v1 to standard output; - is standard input.

    FILE holds a scheduler policy (kind: Policy, YAML or JSON) or a KubeSchedulerConfiguration of v1beta1 to v1beta3.
    Standard error says what has changed, and names each thing that could not be carried over with its line. Exits with
    1, and writes nothing, if FILE has mistakes.
    """
    with explained(registry.RegistryError):
        classes = registry.registry(entry_points(group=registry.GROUP))
    name, text = (STDIN if file == "-" else file), ""
    try:
        text = decode_text(content(file, name), name)
        converted = convert_text(text, name, registry.capabilities(classes))
    except ConfigurationError as error:
        click.echo(problems_as_text(Checked(name, text, error)), nl=False, err=True)
        context.exit(1)
    click.echo(problems_as_text(Checked(name, text, converted.loaded)), nl=False, err=True)
    written = yaml.safe_dump_all(converted.documents, sort_keys=False, allow_unicode=True)
    click.echo(written, nl=False)


command: Final = _convert_config
