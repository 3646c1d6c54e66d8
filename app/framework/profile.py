"""The plugins of one profile: which instances run at which extension point, in which order, and what their scores weigh."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app.framework.interface import Plugin


class ProfilePlugins(msgspec.Struct, frozen=True):
    """The plugin instances of a profile by extension point (configuration names), and the weights of Score plugins by name."""

    by_point: Mapping[str, Sequence[Plugin]]
    weights: Mapping[str, int]

    def at(self, point: str) -> Sequence[Any]:
        """The plugins of a point, in running order; none for a point that is not given."""
        return self.by_point.get(point, ())
