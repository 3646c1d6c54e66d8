"""What a plugin (class) has: its extension points, optional methods and attributes; and whether it can be used at all.

No other module looks for methods and attributes of plugins: what is found here is kept when a profile is built.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from app.framework.interface import POINT_METHODS, Need, Plugin
from app.framework.optional import UndecidedOnly, ZeroNormalized
from app.model.pod import PodTemplate
from app.state.queue.hints import EventRegistration

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


#: Attributes that mean nothing without their base class.
_ATTRIBUTES: Final = {"UNDECIDED_ONLY": UndecidedOnly, "ZERO_NORMALIZED": ZeroNormalized}


def has(plugin: type | Plugin, method: str) -> bool:
    """Whether a plugin (class) has a method of the interface (docs/plugins.md, "What a plugin is")."""
    return method_of(plugin, method) is not None


def method_of(plugin: type | Plugin, method: str) -> Callable[..., Any] | None:
    """A plugin's method of the interface; None if it has none."""
    found = getattr(plugin, method, None)
    return found if callable(found) else None


def points_of(plugin: type | Plugin) -> frozenset[str]:
    """The configuration names of the extension points at which a profile may list a plugin (class).

    These are the points for which it has a method, and its ``IDLE_AT``: points of kube-scheduler's plugin of that name
    at which this one has nothing to do.
    """
    idle: frozenset[str] = getattr(plugin, "IDLE_AT", frozenset())
    return idle.union(point for point in POINT_METHODS if acts_at(plugin, point))


def needs_of(plugin: type | Plugin) -> Mapping[str, Need]:
    """The plugin's ``NEEDS`` by extension point; empty by default."""
    needs: Mapping[str, Need] = getattr(plugin, "NEEDS", {})
    return needs


def acts_at(plugin: type | Plugin, point: str) -> bool:
    """Whether a plugin (class) has a method for an extension point, given by its name in the configuration."""
    return has(plugin, POINT_METHODS.get(point, ""))


def concerned(plugin: Plugin, template: PodTemplate) -> bool:
    """Whether a plugin applies to pods of this template, from PreFilter to Score: its ``concerns`` may say that it does
    not."""
    concerns: Callable[[PodTemplate], bool] | None = method_of(plugin, "concerns")
    return concerns is None or concerns(template)


def registrations_of(plugin: Plugin) -> Iterable[EventRegistration] | None:
    """The events that a plugin registers; None if it has no ``events_to_register`` (any event then wakes its pods)."""
    method: Callable[[], Iterable[EventRegistration]] | None = method_of(
        plugin, "events_to_register"
    )
    return None if method is None else method()


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
    for attribute, base in _ATTRIBUTES.items():
        if hasattr(plugin, attribute) and not issubclass(plugin, base):
            return f"{attribute} needs the base class {base.__name__}"
    if issubclass(plugin, ZeroNormalized) and not hasattr(plugin, "ZERO_NORMALIZED"):
        return "the class lacks ZERO_NORMALIZED"
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
