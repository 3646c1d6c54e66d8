"""Which of a function's overloads a call is for, where the checker leaves that to the values."""

from collections.abc import Callable, Sequence

from app.cel.declarations import Overload
from app.cel.environment import FUNCTIONS
from app.cel.errors import EvaluationError
from app.cel.syntax import Call, Node
from app.cel.types import Type
from app.cel.values import NO_OVERLOAD, Value, type_name


def dispatched(node: Call, operands: Sequence[Node]) -> Callable[..., Value]:
    """The function to call: it checks what the checker could not."""
    every = FUNCTIONS[node.function]
    candidates = [it for it in every if it.key in node.overloads]
    first = candidates[0]
    if first.call is not None and not first.guarded:
        return first.call
    if len(candidates) == 1 and first.call is not None:
        open_places = [place for place, it in enumerate(operands) if _open(it.type)]
        if not open_places:
            return first.call
    else:
        candidates = [it for it in every if len(it.arguments) == len(operands)]
    return _guarded(node.function, candidates)


def _guarded(name: str, candidates: list[Overload]) -> Callable[..., Value]:
    def call(*values: Value) -> Value:
        for it in candidates:
            if it.call is not None and all(map(_accepts, it.arguments, values)):
                return it.call(*values)
        raise EvaluationError(f"{NO_OVERLOAD}: {name}({', '.join(map(type_name, values))})")

    return call


def _open(it: Type) -> bool:
    """Whether a type leaves something to the value: null is taken where an optional value or one of Kubernetes' is wanted."""
    return it.kind not in {"basic", "list", "map", "type"} or any(map(_open, it.parameters))


def _accepts(it: Type, value: Value) -> bool:
    """Whether a value is of a type; of lists and maps the first element tells."""
    if it.dynamic or it.kind == "param":
        return True
    if type_name(value) != it.name:
        return False
    if it.kind == "list" and value:
        return _accepts(it.parameters[0], value[0])
    if it.kind == "map" and len(value):
        return all(map(_accepts, it.parameters, next(iter(value.items()))))
    return True
