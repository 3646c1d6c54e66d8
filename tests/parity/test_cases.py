"""The recorded decisions of kube-scheduler 1.36.2: the same nodes, messages, scores and victims (vectors/README in docs).

Every probe is judged alone, as it was recorded: first against an extender that turns every node down (feasible nodes, message,
victims), then, if it fits anywhere, scored with all feasible nodes.
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.cycle.attempt import Attempt, Unfit
from app.framework.diagnosis import Diagnosis
from app.model.status import Code, Status
from app.state.view import View
from tests.parity.cluster import CASES, Recorded, read

FILES = sorted(CASES.glob("case-*.json.gz"))


class Evictionless:
    """Effects of a scheduler whose extender agrees to no preemption."""

    def __init__(self) -> None:
        self.victims: dict[str, Any] | None = None


def judge(attempt: Attempt, *, resolvable: bool) -> tuple[list[str], Diagnosis]:
    """The feasible nodes, and the diagnosis once the extender has turned them all down."""
    try:
        rows = attempt.find()
    except Unfit as unfit:
        return [], unfit.diagnosis
    code = Code.Unschedulable if resolvable else Code.UnschedulableAndUnresolvable
    verdict = Status(code, ("rejected by twin",), "Extender")
    attempt.extender_verdicts.update(dict.fromkeys(attempt.names(rows), verdict))
    return sorted(attempt.names(rows)), attempt.diagnosis()


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.name.removesuffix(".json.gz"))
def test_decisions_agree(path: Path) -> None:
    case = read(path)
    recorded = Recorded(case)
    wrong: list[str] = []
    for probe in case["probes"]:
        if probe["feasible"] is None:
            continue
        wrong += check(recorded, probe)
    assert not wrong, f"{len(wrong)} disagreements:\n" + "\n".join(wrong)


def check(recorded: Recorded, probe: dict[str, Any]) -> list[str]:
    """What differs from the recording, in words."""
    pod = recorded.pod(probe["pod"])
    attempt = recorded.attempt(pod)
    resolvable = (probe["pod"]["metadata"].get("annotations") or {}).get("twin/reject") == "resolvable"
    feasible, diagnosis = judge(attempt, resolvable=resolvable)
    label = f"{probe['name']} {probe['tags']}"
    wrong = []
    if feasible != probe["feasible"]:
        wrong.append(f"{label}: feasible {feasible}, recorded {probe['feasible']}")
    result = asyncio.run(attempt.framework.post_filter(attempt.state, pod, diagnosis, Evictionless()))
    message = diagnosis.message("" if result is None or result.status.ok else result.status.message)
    if message != probe["message"]:
        wrong.append(f"{label}: message\n   {message}\n   {probe['message']}")
    if probe["final_scores"]:
        wrong += check_scores(recorded, probe, label)
    return wrong


def check_scores(recorded: Recorded, probe: dict[str, Any], label: str) -> list[str]:
    """What differs in the scores of a probe that fits on two nodes or more."""
    attempt = recorded.attempt(recorded.pod(probe["pod"]))
    rows = attempt.find()
    names = attempt.names(rows)
    totals = dict(zip(names, attempt.rank(rows).tolist(), strict=True))
    wrong = []
    if totals != probe["final_scores"]:
        wrong.append(f"{label}: totals {totals}, recorded {probe['final_scores']}")
    parts = attempt.framework.plugin_scores(
        attempt.state, attempt.pod, attempt.memo, View(recorded.state.table, rows)
    )
    for plugin in sorted(parts.keys() | probe["plugin_scores"].keys()):
        ours = dict(zip(names, parts.get(plugin, np.zeros(len(rows), np.int64)).tolist(), strict=True))
        theirs = probe["plugin_scores"].get(plugin, dict.fromkeys(names, 0))
        if ours != theirs:
            wrong.append(f"{label}: {plugin} {ours}, recorded {theirs}")
    return wrong
