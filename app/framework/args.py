"""Profiles as plain values, made from a validated configuration.

In-tree plugins receive their arguments as app.plugins.args has them, third-party plugins as they are in the file; they
validate them with PluginArgs.
"""

from collections.abc import Mapping
from typing import Any, Self

import msgspec


class PluginArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Base of a third-party plugin's arguments: one field per argument, snake case here and camel case in the file.

    ::

        class PriceArgs(PluginArgs, frozen=True):
            label: str = "example.com/price"
            unlabelled_price: float = 1.0  # unlabelledPrice

        PriceArgs.read({"unlabelledPrice": 2})
    """

    @classmethod
    def read(cls, given: object) -> Self:
        """Converts the ``args`` of a plugin's constructor; None means no arguments.

        Raises ValueError with the path of a field that is unknown, missing or of the wrong type.
        """
        try:
            return msgspec.convert({} if given is None else given, cls)
        except msgspec.ValidationError as error:
            said, _, path = str(error).partition(" - at `$")
            raise ValueError(f"args{path.removesuffix('`')}: {said}") from None


class Profile(msgspec.Struct, frozen=True):
    """A scheduler name with its plugins by extension point."""

    scheduler_name: str
    percentage_of_nodes_to_score: int | None
    """1 to 100: the profile's own value, else the configuration's; None for the adaptive count."""
    points: Mapping[str, tuple[str, ...]]
    """Extension point as in the configuration (``preFilter``) -> plugin names in running order; every point is a
    key."""
    score_weights: Mapping[str, int]
    """Plugin name -> weight, for each name in ``points["score"]``."""
    plugin_config: Mapping[str, Any]
    """Plugin name -> arguments: every in-tree plugin that takes any, and the out-of-tree ones given, as plain JSON."""
    placement_weights: Mapping[str, int] = {}
    """Plugin name -> weight, for each name in ``points["placementScore"]``."""
