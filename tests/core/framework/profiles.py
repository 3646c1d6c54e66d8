"""Profiles of a few plugins, for the tests of what runs them."""

from collections.abc import Mapping
from typing import Any

from app.framework.interface import POINT_METHODS
from app.framework.plugin_class import points_of
from app.framework.profile import ProfilePlugins


def profile_of(*plugins: Any, weights: Mapping[str, int] | None = None) -> ProfilePlugins:
    """These plugins, in this order, at every extension point that they have a method for."""
    by_point = {p: [each for each in plugins if p in points_of(each)] for p in POINT_METHODS}
    return ProfilePlugins(by_point, weights or {})
