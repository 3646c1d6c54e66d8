"""Compiles a checked tree to closures.

A closure takes a ``Run`` and returns a value, or raises EvaluationError. It adds its cost, by Kubernetes' rules
(``costs``), to the run. Comprehensions compare the cost with the limit in every iteration; the caller compares it at
the end.
"""

from collections.abc import Callable
from typing import Any, Final

from app.cel import costs
from app.cel.costs import Run
from app.cel.environment import choose_overload
from app.cel.errors import CompileError, EvaluationAborted, EvaluationError
from app.cel.standard import compiled, contains
from app.cel.syntax import (
    Bind,
    Call,
    Expr,
    Fold,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Select,
)
from app.cel.values import (
    KEYS,
    MISSING,
    NO_OVERLOAD,
    NONE,
    Growing,
    GrowingMap,
    Map,
    Optional,
    TypeName,
    Value,
    equal,
    find,
    hashed,
    is_list,
    look_up,
    look_up_optional,
    show,
    type_name,
)

Evaluate = Callable[[Run], Value]


class _Step:
    """The closure of a node. ``constant`` is its value if that is known, otherwise MISSING.

    ``resolve``, of variables and members, is ``evaluate`` without the cost of reading the variable, which Kubernetes
    does not count for an index or a branch of ``?:``.
    """

    __slots__ = ("constant", "evaluate", "resolve")

    def __init__(
        self, evaluate: Evaluate, *, constant: Value = MISSING, resolve: Evaluate | None = None
    ) -> None:
        self.evaluate: Final = evaluate
        self.constant: Final = constant
        self.resolve: Final = resolve


class _Failure:
    """The value of a variable that could not be computed: reading it raises the error."""

    __slots__ = ("error",)

    def __init__(self, error: EvaluationError) -> None:
        self.error: Final = error


class _Pending:
    """The value of a bound variable before the first read."""

    __slots__ = ("compute",)

    def __init__(self, compute: Evaluate) -> None:
        self.compute: Final = compute

    def settle(self, run: Run) -> Value:
        """The value, or a _Failure."""
        try:
            return _growing(self.compute(run))
        except EvaluationError as error:
            return _Failure(error)


_CONVERSIONS = frozenset(["bool", "double", "dyn", "int", "string", "type", "uint"])
_SEARCHES = frozenset({"find", "findAll", "matches"})


def plan(node: Expr) -> _Step:
    """The closure of a checked node. Raises CompileError if a constant has no value."""
    match node:
        case Literal():
            return _constant(node.value)
        case Ident():
            return _ident(node)
        case Select():
            return _select(node)
        case Call():
            return _SPECIAL.get(node.function, _call)(node)
        case ListLiteral():
            return _list(node)
        case MapLiteral():
            return _map(node)
        case Bind():
            return _bind(node)
        case Fold():
            return _fold(node)
    raise CompileError(f"unsupported expression: {type(node).__name__}")


def _constant(value: Value) -> _Step:
    return _Step(lambda _: value, constant=value)


def _instantiation(text: object) -> CompileError:
    return CompileError(f"program instantiation failed: {text}")


# ---------------------------------------------------------------- variables and members


def _ident(node: Ident) -> _Step:
    if node.type_name is not None:
        return _constant(TypeName(node.type_name))
    variable = node.variable
    if variable is None or variable.slot < 0:
        return _attribute(lambda run: run.device)
    slot = variable.slot

    def resolve(run: Run) -> Value:
        value = run.frame[slot]
        if type(value) is _Pending:
            value = run.frame[slot] = value.settle(run)
        if type(value) is _Failure:
            raise value.error.with_traceback(None)
        return value

    return _attribute(resolve)


def _attribute(resolve: Evaluate, base: int = costs.MEMBER) -> _Step:
    def evaluate(run: Run) -> Value:
        run.cost += base
        return resolve(run)

    return _Step(evaluate, resolve=resolve)


def _qualified(step: _Step, qualify: Callable[[Run, Value], Value]) -> _Step:
    """A member of the value of a step."""
    root = step.resolve or step.evaluate
    return _attribute(lambda run: qualify(run, root(run)))


def _select(node: Select) -> _Step:
    if node.ident is not None:
        return _ident(node.ident)
    if node.test:
        return _test(node)
    if node.optional:
        return _member(plan(node.operand), node.name, optional=True)
    keys = [node.name]
    operand = node.operand
    while (name := _plain_key(operand)) is not None:
        keys.insert(0, name)
        operand = operand.operand if isinstance(operand, Select) else operand.arguments[0]  # type: ignore[attr-defined]
    step = plan(operand)
    return _member(step, keys[0]) if len(keys) == 1 else _path(step, tuple(keys))


def _plain_key(node: Expr) -> str | None:
    """The name or the literal string that a node looks up, or None."""
    if isinstance(node, Select) and not (node.optional or node.test or node.ident):
        return node.name
    if isinstance(node, Call) and node.function == "_[_]":
        key = node.arguments[1]
        if isinstance(key, Literal) and isinstance(key.value, str):
            return key.value
    return None


def _path(step: _Step, keys: tuple[str, ...]) -> _Step:
    """Several members in a row, such as ``device.attributes["domain"].name``."""
    units = len(keys) * costs.MEMBER

    def walk(run: Run, value: Value) -> Value:
        run.cost += units
        for key in keys:
            value = look_up(value, key)
        return value

    return _qualified(step, walk)


def _member(step: _Step, key: Value, *, optional: bool = False) -> _Step:
    if type(key) not in KEYS:
        raise _instantiation(f"invalid qualifier type: {type_name(key)}")
    take = look_up_optional if optional else look_up

    def qualify(run: Run, value: Value) -> Value:
        found = take(value, key)
        run.cost += found is not NONE
        return found

    return _qualified(step, qualify)


def _index(node: Call) -> _Step:
    step, index = plan(node.arguments[0]), plan(node.arguments[1])
    optional = node.function == "_[?_]"
    if index.constant is not MISSING:
        return _member(step, index.constant, optional=optional)
    take = look_up_optional if optional else look_up
    of_index = index.resolve or index.evaluate

    def qualify(run: Run, value: Value) -> Value:
        if value is NONE:
            return NONE
        key = of_index(run)
        if type(key) not in KEYS:
            raise EvaluationError(f"invalid qualifier type: {type_name(key)}")
        found = take(value, key)
        run.cost += found is not NONE
        return found

    return _qualified(step, qualify)


def _test(node: Select) -> _Step:
    """``has(operand.name)``."""
    step = plan(node.operand)
    root, name = step.resolve or step.evaluate, node.name

    def evaluate(run: Run) -> bool:
        value = root(run)
        run.cost += costs.MEMBER
        if type(value) is Optional:
            return look_up_optional(value, name) is not NONE
        return find(value, name) is not MISSING

    return _Step(evaluate)


# ---------------------------------------------------------------- operators


def _conditional(node: Call) -> _Step:
    condition, then, other = map(plan, node.arguments)
    test = condition.evaluate
    yes, no = then.resolve or then.evaluate, other.resolve or other.evaluate

    def resolve(run: Run) -> Value:
        decision = test(run)
        if decision is True:
            return yes(run)
        if decision is False:
            return no(run)
        raise EvaluationError(NO_OVERLOAD)

    return _attribute(resolve, base=0)


def _logic(node: Call) -> _Step:
    """``&&`` and ``||``. If one term decides the result, errors in the others are ignored."""
    terms = [plan(it).evaluate for it in node.arguments]
    decisive = node.function == "_||_"

    def evaluate(run: Run) -> bool:
        failure: EvaluationError | None = None
        for term in terms:
            try:
                value = term(run)
            except EvaluationError as error:
                failure = failure or error
                continue
            if type(value) is not bool:
                failure = failure or EvaluationError(NO_OVERLOAD)
            elif value is decisive:
                return value
        if failure is not None:
            raise failure
        return not decisive

    return _Step(evaluate)


def _equality(node: Call) -> _Step:
    one, other = (plan(it).evaluate for it in node.arguments)
    if node.function == "_==_":

        def evaluate(run: Run) -> bool:
            left, right = one(run), other(run)
            run.cost += costs.equality(left, right)
            return equal(left, right)

        return _Step(evaluate)

    def differ(run: Run) -> bool:
        left, right = one(run), other(run)
        run.cost += costs.inequality(left, right)
        try:
            return not equal(left, right)
        except EvaluationError:
            return True

    return _Step(differ)


def _in(node: Call) -> _Step:
    """``value in container``. A look-up in a list of constants is free."""
    value, container = map(plan, node.arguments)
    listed = container.constant
    if node.overloads != ("@in(A, list<A>)",) or not is_list(listed):
        return _call(node)
    if not listed:
        return _constant(False)
    if any(type(it) not in KEYS for it in listed):
        return _call(node)
    wanted = value.evaluate
    if all(type(it) is str for it in listed):
        words = frozenset(listed)
        return _Step(lambda run: hashed(wanted(run)) in words)

    def evaluate(run: Run) -> bool:
        sought = wanted(run)
        hashed(sought)
        return contains(sought, listed)

    return _Step(evaluate)


def _going(node: Call) -> _Step:
    argument = plan(node.arguments[0]).evaluate

    def evaluate(run: Run) -> bool:
        run.cost += 1
        try:
            return argument(run) is not False
        except EvaluationError:
            return True

    return _Step(evaluate)


def _alternative(node: Call) -> _Step:
    """``optional.or(other)`` and ``optional.orValue(value)``. The argument is only evaluated if the optional has no
    value."""
    first, other = plan(node.target or node).evaluate, plan(node.arguments[0]).evaluate
    unwrap = node.function == "orValue"

    def evaluate(run: Run) -> Value:
        value = first(run)
        if type(value) is not Optional:
            return value
        if value is NONE:
            return other(run)
        return value.value if unwrap else value

    return _Step(evaluate)


# ---------------------------------------------------------------- functions


def _call(node: Call) -> _Step:
    operands = [node.target, *node.arguments] if node.target else node.arguments
    steps = [plan(it) for it in operands]
    constants = [it.constant for it in steps]
    _check_pattern(node.function, constants)
    call = choose_overload(node, operands)
    cost = costs.of_call(node.function, node.overloads)
    if MISSING not in constants:
        return _computed(node.function, call, cost, constants)
    evaluations = [it.evaluate for it in steps]
    if cost is None:
        return _flat_call(call, evaluations)

    return _Step(lambda run: costs.charge(run, cost, call, [it(run) for it in evaluations]))


def _flat_call(call: Callable[..., Value], evaluations: list[Evaluate]) -> _Step:
    """A call that costs 1."""
    if len(evaluations) == 2:
        first, second = evaluations

        def binary(run: Run) -> Value:
            run.cost += 1
            return call(first(run), second(run))

        return _Step(binary)

    def evaluate(run: Run) -> Value:
        run.cost += 1
        return call(*[it(run) for it in evaluations])

    return _Step(evaluate)


def _check_pattern(name: str, constants: list[Value]) -> None:
    if name in _SEARCHES and len(constants) > 1 and type(constants[1]) is str:
        try:
            compiled(constants[1])
        except EvaluationError as error:
            raise _instantiation(error) from None


def _computed(
    name: str, call: Callable[..., Value], cost: costs.Cost | None, constants: list[Value]
) -> _Step:
    """A call with constant arguments only: computed at compile time. Its cost is still charged, except for
    conversions."""
    meter = costs.Meter()
    try:
        if cost is None:
            meter.cost += 1
            value = call(*constants)
        else:
            value = costs.charge(meter, cost, call, constants)
    except (EvaluationError, EvaluationAborted) as error:
        if name in _CONVERSIONS:
            raise _instantiation(error) from None
        return _Step(_failing(error, meter.cost))
    if name in _CONVERSIONS and len(constants) == 1:
        return _constant(value)
    units = meter.cost

    def evaluate(run: Run) -> Value:
        run.cost += units
        return value

    return _Step(evaluate)


def _failing(error: Exception, units: int) -> Evaluate:
    def evaluate(run: Run) -> Value:
        run.cost += units
        raise error.with_traceback(None)

    return evaluate


# ---------------------------------------------------------------- literals


def _list(node: ListLiteral) -> _Step:
    steps = [plan(it) for it in node.elements]
    constants = [it.constant for it in steps]
    if MISSING not in constants and not node.optionals:
        return _constant(tuple(constants))
    parts = [(it.evaluate, place in node.optionals) for place, it in enumerate(steps)]

    def evaluate(run: Run) -> Value:
        run.cost += costs.LIST
        values = []
        for element, optional in parts:
            value = element(run)
            if optional:
                if type(value) is not Optional:
                    raise EvaluationError(
                        "cannot initialize optional list element from non-optional value "
                        + show(value)
                    )
                if value is NONE:
                    continue
                value = value.value
            values.append(value)
        return tuple(values)

    return _Step(evaluate)


def _map(node: MapLiteral) -> _Step:
    parts = [(plan(key), plan(value), optional) for key, value, optional in node.entries]

    def evaluate(run: Run) -> Map:
        run.cost += costs.MAP
        made = Map()
        for key_step, value_step, optional in parts:
            key, value = key_step.evaluate(run), value_step.evaluate(run)
            if optional:
                if type(value) is not Optional:
                    raise EvaluationError(
                        f"cannot initialize optional entry '{show(key)}' from non-optional value "
                        + show(value)
                    )
                if value is NONE:
                    made.remove(key)
                    continue
                value = value.value
            made.put(key, value)
        return made

    if all(MISSING not in (key.constant, value.constant) for key, value, _ in parts):
        return _constant(evaluate(Run(Map(), 0)))
    return _Step(evaluate)


# ---------------------------------------------------------------- variables' scopes


def _bind(node: Bind) -> _Step:
    slot = node.variable.slot if node.variable is not None else -1
    body, pending = plan(node.body).evaluate, _Pending(plan(node.value).evaluate)

    def evaluate(run: Run) -> Value:
        run.frame[slot] = pending
        return _settled(body(run))

    return _Step(evaluate)


def _growing(value: Value) -> Value:
    """The initial value of a variable. An empty list or map becomes one that grows in place."""
    if is_list(value) and not value:
        return Growing()
    if isinstance(value, Map) and not value.entries:
        return GrowingMap()
    return value


def _settled(value: Value) -> Value:
    """The value that leaves a variable's scope: a list or map that grew becomes a plain one."""
    if type(value) is Growing:
        return tuple(value)
    return Map(value.entries) if type(value) is GrowingMap else value


def _fold(node: Fold) -> _Step:
    over, initial, step, result = (
        plan(it).evaluate for it in (node.range, node.initial, node.step, node.result)
    )
    condition = plan(node.condition)
    going = None if condition.constant is True else condition.evaluate
    accumulator = node.variables[0].slot
    slots = [it.slot for it in node.variables[1:]]

    def evaluate(run: Run) -> Value:
        frame = run.frame
        elements = _elements(over(run), double=len(slots) == 2)
        frame[accumulator] = _growing(initial(run))
        for element in elements:
            for slot, value in zip(slots, element, strict=True):
                frame[slot] = value
            if going is not None and not going(run):
                break
            try:
                frame[accumulator] = step(run)
            except EvaluationError as error:
                frame[accumulator] = _Failure(error)
            if run.cost > run.pause:
                run.look()
        return _settled(result(run))

    return _Step(evaluate)


def _elements(value: Value, *, double: bool) -> Any:
    """The values of the iteration variables, for each iteration."""
    if is_list(value):
        return enumerate(value) if double else ((it,) for it in tuple(value))
    if isinstance(value, Map):
        return tuple(value.items()) if double else tuple((key,) for key, _ in value.items())
    if double:
        raise EvaluationError(f"unsupported comprehension range type: {type_name(value)}")
    raise EvaluationError(f"got '{type_name(value)}', expected iterable type")


_SPECIAL: dict[str, Callable[[Call], _Step]] = {
    "_?_:_": _conditional,
    "_&&_": _logic,
    "_||_": _logic,
    "_==_": _equality,
    "_!=_": _equality,
    "_[_]": _index,
    "_[?_]": _index,
    "@in": _in,
    "@not_strictly_false": _going,
    "or": _alternative,
    "orValue": _alternative,
}
