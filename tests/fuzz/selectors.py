"""Selectors of devices: expressions of the Common Expression Language, well-formed ones and others."""

from random import Random

_ATOMS = (
    "device.driver", "device.attributes", 'device.attributes["gpu.example.com"]', "device.attributes['gpu.example.com'].model",
    'device.attributes["gpu.example.com"].memory', 'device.capacity["gpu.example.com"].memory', "device.allowMultipleAllocations",
    "true", "false", "0", "1", "-1", "9223372036854775807", "1.5", "1u", '"a100"', "''", "r'\\d+'", "b'x'", "null", "[]", "{}", "[1, 2, 3]", '{"a": 1}',
    "quantity('1Gi')", "semver('1.2.3')", "duration('1h')", "timestamp('2026-01-01T00:00:00Z')", "type(1)", "x", "device",
    "'" + "x" * 200 + "'", "ip('10.0.0.1')", "cidr('10.0.0.0/8')", "url('http://a')", "optional.of(1)", "dyn(1)",
)  # fmt: skip
_CONDITIONS = (
    "true", "false", 'device.driver == "gpu.example.com"', 'device.attributes["gpu.example.com"].model == "a100"', "device.allowMultipleAllocations",
    'device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) >= 0', '"gpu.example.com" in device.attributes', "[1, 2, 3].exists(x, x == 2)",
    'has(device.attributes["example.com"].pcie)', 'device.driver.matches("(gpu|nic).*")', 'device.attributes["gpu.example.com"].model.startsWith("a")',
)  # fmt: skip
_BINARY = ("+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in", "?", ":")
_CALLS = (
    "{0}.startsWith({1})", "{0}.matches({1})", "{0}.contains({1})", "size({0})", "{0}.size()", "has({0}.x)", "string({0})", "int({0})",
    "{0}.all(x, {1})", "{0}.exists(x, x == {1})", "{0}.map(x, {1})", "{0}.filter(x, {1})", "{0}.exists_one(x, {1})", "{0}[{1}]",
    "{0}.compareTo({1})", "{0}.isGreaterThan({1})", "!({0})", "-({0})", "({0}) ? ({1}) : ({0})", "cel.bind(x, {0}, x == {1})",
    "{0}.split({1})", "{0}.replace({1}, {1})", "{0}.find({1})", "{0}.lowerAscii()", "{0}.sum()", "{0}.orValue({1})", "{0}.?x", "sets.contains({0}, {1})",
    "{0}.format([{1}])", "{0}.map(x, {0}.map(y, {1}))", "lists.range({1})", "math.greatest({0}, {1})", "{0}.transformList(i, v, {1})",
)  # fmt: skip
_TOKENS = (
    *"()[]{}.,?:+-*/%!<>=&|\"'\\ \n\0_",
    "&&",
    "in",
    "'''",
    '"""',
    "//",
    "0x",
    "1e",
    "1e999",
    "\u00fc",
    "\\u0000",
    "device",
    "true",
)


def expression(random: Random, depth: int | None = None) -> str:
    """An expression, most of the time one that compiles or nearly does."""
    depth = random.choice([0, 1, 1, 2, 2, 3, 4]) if depth is None else depth
    if random.random() < 0.3:
        return f" {random.choice(('&&', '||'))} ".join(
            random.choices(_CONDITIONS, k=random.choice([1, 1, 2, 3, 30]))
        )
    if depth == 0:
        return random.choice(_ATOMS)
    if random.random() < 0.5:
        return f"{expression(random, depth - 1)} {random.choice(_BINARY)} {expression(random, depth - 1)}"
    return random.choice(_CALLS).format(
        expression(random, depth - 1), expression(random, depth - 1)
    )


def damaged(random: Random) -> str:
    """An expression with something inserted, cut out or repeated; or one that is very long or very deep."""
    if random.random() < 0.1:
        opening, closing = random.choice(
            [
                ("(", ")"),
                ("[", "]"),
                ("!", ""),
                ("-", ""),
                ("{1:", "}"),
                ("true ? 1 : ", ""),
                ("size(", ")"),
            ]
        )
        times = random.choice([30, 100, 250, 1000, 5000])
        return opening * times + "1" + closing * times
    if random.random() < 0.1:
        return random.choice([" + ", " && ", " || ", ".x", "[0]", ", "]).join(
            [random.choice(_ATOMS)] * random.choice([20, 300, 3000])
        )
    text = expression(random)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(text) + 1)
        match random.randrange(3):
            case 0:
                text = text[:at] + random.choice(_TOKENS) + text[at:]
            case 1:
                text = text[:at] + text[at + random.randint(1, 5) :]
            case 2:
                text = text[:at] + text[max(0, at - 10) :]
    return text[:10_240]
