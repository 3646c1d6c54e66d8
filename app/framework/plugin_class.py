"""Checks that a class can be used as a plugin."""

import inspect
from typing import Any, Final

from app.framework.interface import POINT_METHODS, points_of

PluginClass = type[Any]

_COROUTINES: Final = frozenset({"post_filter", "pre_bind", "undo_pre_bind", "bind"})
#: Methods that need another method.
_COMPANIONS: Final = {
    "reserve": "unreserve",
    "unreserve": "reserve",
    "normalize": "score",
    "score_placements": "grows",
    "normalize_placements": "score_placements",
    "undo_pre_bind": "pre_bind",
}
_METHODS: Final = (
    *POINT_METHODS.values(),
    "normalize",
    "normalize_placements",
    "grows",
    "unreserve",
    "pre_bind_pre_flight",
    "undo_pre_bind",
    "events_to_register",
)


def fault_of(plugin: PluginClass) -> str:
    """Why a class cannot be used as a plugin; empty if it can."""
    name = getattr(plugin, "NAME", None)
    if not isinstance(name, str) or not name:
        return "the class has no NAME (a non-empty string)"
    if not points_of(plugin):
        return "the class has no method of any extension point, such as filter or score"
    lacking = _lacking(plugin)
    if lacking:
        return f"the class lacks {', '.join(lacking)}"
    return _wrong_kind_of_method(plugin) or _wrong_constructor(plugin)


def _lacking(plugin: PluginClass) -> list[str]:
    """The abstract methods, and the missing companions of its methods."""
    abstract: frozenset[str] = getattr(plugin, "__abstractmethods__", frozenset())
    needed = [need for have, need in _COMPANIONS.items() if hasattr(plugin, have)]
    return sorted({*abstract, *(need for need in needed if not hasattr(plugin, need))})


def _wrong_kind_of_method(plugin: PluginClass) -> str:
    for method in _METHODS:
        function = getattr(plugin, method, None)
        if not inspect.isfunction(function):
            continue
        if inspect.iscoroutinefunction(function) != (method in _COROUTINES):
            needed = "must be" if method in _COROUTINES else "must not be"
            return f"{method} {needed} a coroutine (async def)"
    return ""


def _wrong_constructor(plugin: PluginClass) -> str:
    try:
        signature = inspect.signature(plugin)
    except (TypeError, ValueError):
        return ""
    try:
        signature.bind(None, None)
    except TypeError as error:
        return f"the constructor must take (args, handle), not {signature}: {error}"
    return ""
