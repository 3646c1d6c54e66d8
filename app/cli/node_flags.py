"""Options for the nodes of an embedded cluster, shared by ``apiserver`` and ``simulate``."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from app.model.quantity import QuantityError, parse
from app.sim import NodeOptions

F = TypeVar("F", bound=Callable[..., Any])

_DEFAULTS: Final = NodeOptions()
_COUNT: Final = click.IntRange(min=0)
_SIZES: Final = ("cpu", "memory", "pods")

_option: Final = functools.partial(click.option, show_default=True)
_FLAGS: Final = (
    _option("--nodes", type=_COUNT, default=0, metavar="N", help="Nodes to create."),
    _option("--zones", type=_COUNT, default=_DEFAULTS.zones, help="Zones of the nodes, in turn."),
    *(
        _option(f"--node-{size}", default=getattr(_DEFAULTS, size), metavar="QUANTITY")
        for size in _SIZES
    ),
    _option(
        "--node-devices",
        type=_COUNT,
        default=0,
        metavar="N",
        help="Devices of each node, of the class gpu.example.com.",
    ),
)


def node_flags(command: F) -> F:
    """Adds the options to a command; ``made_nodes`` evaluates them."""
    for flag in reversed(_FLAGS):
        command = flag(command)
    return command


def made_nodes(given: Mapping[str, Any]) -> NodeOptions:
    """The nodes that the options define. Raises click.UsageError for a size that is not a quantity."""
    sizes = {size: given[f"node_{size}"] for size in _SIZES}
    for size, text in sizes.items():
        try:
            parse(text)
        except QuantityError as error:
            raise click.UsageError(f"--node-{size} {text}: {error}") from error
    return NodeOptions(
        count=given["nodes"], zones=given["zones"], devices=given["node_devices"], **sizes
    )
