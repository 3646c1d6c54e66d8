"""What kube-apiserver 1.36.2 answers to PodGroups and Workloads, with all gates on: recorded in
``pod_group_answers.jsonl``.

A case creates an object with a ``spec``, and may then apply a merge ``patch`` to it; ``answer`` is that of the last
request.
"""

import json
from pathlib import Path
from typing import Any, Final

VERSION: Final = "scheduling.k8s.io/v1alpha2"
ROOT: Final = f"/apis/{VERSION}/namespaces/default"
GATES: Final = (
    "GenericWorkload",
    "GangScheduling",
    "TopologyAwareWorkloadScheduling",
    "WorkloadAwarePreemption",
    "DRAWorkloadResourceClaims",
    "WorkloadWithJob",
)
FLAGS: Final = (
    f"--runtime-config={VERSION}=true",
    f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}",
)
"""They mean the same to kube-apiserver and to the embedded cluster."""
PREPARED: Final = (
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "high"}, "value": 1000},
    ),
    (
        f"{ROOT}/workloads",
        {
            "metadata": {"name": "w"},
            "spec": {"podGroupTemplates": [{"name": "t", "schedulingPolicy": {"basic": {}}}]},
        },
    ),
)
"""(path, object) of what the cases refer to."""
_ANSWERS: Final = Path(__file__).with_name("pod_group_answers.jsonl")
CASES: Final[list[dict[str, Any]]] = [
    json.loads(line) for line in _ANSWERS.read_text().splitlines()
]


def created(case: dict[str, Any]) -> dict[str, Any]:
    """The object that a case creates."""
    metadata = {"metadata": {"name": case["name"]}}
    return metadata if case["spec"] is None else metadata | {"spec": case["spec"]}


def summary(code: int, body: dict[str, Any]) -> dict[str, Any]:
    """The part of an answer that is compared. The texts of objects that cannot be decoded are not."""
    if code == 400:
        return {"code": code}
    if code > 400:
        causes = (body.get("details") or {}).get("causes")
        if not causes:
            return {"code": code, "message": body["message"]}
        return {"code": code, "causes": sorted(f"{c['field']}: {c['message']}" for c in causes)}
    metadata = {
        name: body["metadata"][name]
        for name in ("finalizers", "labels")
        if body["metadata"].get(name)
    }
    return {
        "code": code,
        **{name: body[name] for name in ("spec", "status") if name in body},
    } | metadata


def recorded(case: dict[str, Any]) -> dict[str, Any]:
    """The recorded answer."""
    answer: dict[str, Any] = dict(case["answer"])
    return answer | ({"causes": sorted(answer["causes"])} if "causes" in answer else {})
