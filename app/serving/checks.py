"""Named health checks and their report in Kubernetes' format (docs/spec/endpoints.md#health-checks)."""

from collections.abc import Callable, Collection, Mapping, Sequence

import msgspec

#: (check, endpoint, healthy)
_Observe = Callable[[str, str, bool], None]


class Check(msgspec.Struct, frozen=True):
    """A named check; ``problem`` returns what is wrong, or None.

    A check that is not ``fatal`` is reported and does not make its endpoint fail.
    """

    name: str
    problem: Callable[[], str | None]
    fatal: bool = True


def ping() -> Check:
    """A check that always succeeds, because the process answers."""
    return Check("ping", lambda: None)


class HealthReport(msgspec.Struct, frozen=True):
    """An endpoint's answer, and the reasons that it withholds, for the log."""

    healthy: bool
    text: str
    withheld: str = ""
    #: Problems of checks that are not fatal, by name.
    degraded: Mapping[str, str] = {}


def report(
    endpoint: str,
    checks: Sequence[Check],
    *,
    excluded: Collection[str] = (),
    verbose: bool = False,
    observe: _Observe = lambda *_: None,
) -> HealthReport:
    """Runs the checks. The text names failed checks without reasons, because the endpoint is public."""
    lines, withheld, left = [], [], set(excluded)
    degraded: dict[str, str] = {}
    for check in checks:
        if check.name in left:
            left.discard(check.name)
            lines.append(f"[+]{check.name} excluded: ok")
            continue
        problem = check.problem()
        observe(check.name, endpoint, problem is None)
        if problem is None:
            lines.append(f"[+]{check.name} ok")
        elif not check.fatal:
            lines.append(f"[!]{check.name} degraded: reason withheld")
            degraded[check.name] = problem
        else:
            lines.append(f"[-]{check.name} failed: reason withheld")
            withheld.append(f"[-]{check.name} failed: {problem}")
    if left:
        names = ", ".join(f'"{name}"' for name in sorted(left))
        lines.append(f"warn: some health checks cannot be excluded: no matches for {names}")
    if withheld:
        text = "\n".join([*lines, f"{endpoint} check failed", ""])
        return HealthReport(False, text, "\n".join(withheld), degraded)
    text = "\n".join([*lines, f"{endpoint} check passed", ""]) if verbose else "ok"
    return HealthReport(True, text, degraded=degraded)
