"""How functions are declared: what the checker and the planner know of them."""

from collections.abc import Callable
from dataclasses import dataclass

from app.cel.types import Type
from app.cel.values import Value


@dataclass(frozen=True, slots=True)
class Overload:
    """One signature of a function. ``arguments`` of a method begin with its target.

    ``call`` is given values of these types where ``guarded``, and checks them itself otherwise. Overloads without
    ``call`` are the planner's own (operators, ``orValue``).
    """

    name: str
    key: str
    arguments: tuple[Type, ...]
    result: Type
    call: Callable[..., Value] | None
    method: bool = False
    guarded: bool = True


def function(
    name: str, key: str, arguments: tuple[Type, ...], result: Type, call: Callable[..., Value]
) -> Overload:
    """``name(arguments)``."""
    return Overload(name, key, arguments, result, call)


def method(
    name: str, key: str, arguments: tuple[Type, ...], result: Type, call: Callable[..., Value]
) -> Overload:
    """``target.name(arguments)``."""
    return Overload(name, key, arguments, result, call, method=True)


def operator(
    name: str,
    overloads: tuple[tuple[str, tuple[Type, ...], Type], ...],
    call: Callable[..., Value] | None,
    *,
    methods: bool = False,
) -> list[Overload]:
    """All overloads of a function that tells by the values what to do."""
    return [
        Overload(name, key, arguments, result, call, method=methods, guarded=False)
        for key, arguments, result in overloads
    ]
