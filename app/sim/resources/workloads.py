"""The rules of workloads: what their controllers rely on is checked when they are written."""

from typing import Any, Final

from app.sim.errors import Cause, forbidden, invalid_value, required
from app.sim.lookup import Lookup
from app.sim.resources.kinds import BY_RESOURCE
from app.sim.resources.pod_groups import drop_scheduling_group
from app.sim.resources.pod_groups_v1alpha2 import gang_of_job
from app.sim.resources.pods import pod_spec_mistakes
from app.sim.resources.strategy import KindStrategy
from app.sim.selectors import selects_labels
from app.sim.store import Object

_MOST_INDEXES: Final = 100_000
_NUMBERS: Final = (
    "replicas",
    "minReadySeconds",
    "revisionHistoryLimit",
    "progressDeadlineSeconds",
    "completions",
    "parallelism",
    "backoffLimit",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
_HIGHEST: Final = 2**31 - 1
_NOT_A_COUNT: Final = f"must be a number from 0 to {_HIGHEST}"


class WorkloadStrategy(KindStrategy):
    """A workload has a template with containers, and a selector that matches it."""

    selector: str = "required"
    """``required``, ``map`` (a ReplicationController's) or ``none`` (a Job's is made by the server)."""

    def __init__(self, selector: str = "required") -> None:
        self.selector = selector

    def admit(self, value: Object, api: Lookup) -> None:
        template = value["spec"].get("template")
        if isinstance(template, dict):
            drop_scheduling_group(template.get("spec") or {}, {}, api)

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        super().prepare_for_update(value, old, api)
        if value["kind"] != "Job" or value["spec"].get("parallelism") == old["spec"].get(
            "parallelism"
        ):
            return
        group = gang_of_job(old, api)
        if group:
            why = (
                f'cannot change parallelism for a Job referencing gang-scheduled PodGroup "{group}"'
            )
            raise forbidden(BY_RESOURCE["jobs.batch"], value["metadata"]["name"], why)

    def prepare_for_create(self, value: Object, api: Lookup) -> None:  # noqa: ARG002
        if value["kind"] == "Job" and not value["spec"].get("manualSelector"):
            _mark_template(value)

    def mistakes(self, value: Object) -> list[Cause]:
        spec = value.get("spec") or {}
        causes = _number_mistakes(spec)
        template = spec.get("template")
        if not isinstance(template, dict):
            return [*causes, required("spec.template")]
        causes += pod_spec_mistakes(template.get("spec") or {}, "spec.template.spec")
        causes += self._selector_mistakes(spec, template)
        return causes + _bound_mistakes(spec)

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        new, before = (each["spec"].get("selector") for each in (value, old))
        if self.selector == "required" and new != before:
            return [invalid_value("spec.selector", str(new), "field is immutable")]
        return []

    def _selector_mistakes(self, spec: Object, template: Object) -> list[Cause]:
        selector = spec.get("selector")
        labels = (template.get("metadata") or {}).get("labels") or {}
        if self.selector == "map":
            selector = {"matchLabels": selector} if selector else None
        if selector is None:
            return [required("spec.selector")] if self.selector == "required" else []
        if self.selector == "required" and not any(selector.values()):
            detail = "empty selector is invalid for a workload"
            return [invalid_value("spec.selector", "{}", detail)]
        if self.selector != "none" and not selects_labels(selector)(labels):
            detail = "`selector` does not match template `labels`"
            return [invalid_value("spec.template.metadata.labels", str(labels), detail)]
        return []


def job_marks(job: Object) -> dict[str, str]:
    """The labels of all pods of a Job."""
    name, uid = (job["metadata"][part] for part in ("name", "uid"))
    marks = {"batch.kubernetes.io/job-name": name, "job-name": name}
    return marks | {"batch.kubernetes.io/controller-uid": uid, "controller-uid": uid}


def _mark_template(job: Object) -> None:
    """Gives a Job its selector, and its pods the labels for it."""
    marks = job_marks(job)
    spec = job["spec"]
    metadata = spec["template"].get("metadata") or {}
    given = metadata.get("labels") or {}
    spec["template"] = spec["template"] | {"metadata": metadata | {"labels": given | marks}}
    own = "batch.kubernetes.io/controller-uid"
    spec["selector"] = {"matchLabels": {own: marks[own]}}


def _number_mistakes(spec: Object) -> list[Cause]:
    causes = [
        invalid_value(f"spec.{name}", str(spec[name]), _NOT_A_COUNT)
        for name in _NUMBERS
        if name in spec and not _is_count(spec[name])
    ]
    many = spec.get("completionMode") == "Indexed" and spec.get("completions", 0)
    if _is_count(many) and many > _MOST_INDEXES:
        detail = f"must be less than or equal to {_MOST_INDEXES}"
        causes.append(invalid_value("spec.completions", str(many), detail))
    return causes


def _bound_mistakes(spec: Object) -> list[Cause]:
    causes = []
    for name in ("strategy", "updateStrategy"):
        rolling = (spec.get(name) or {}).get("rollingUpdate") or {}
        for bound, (is_valid, detail) in _BOUNDS.items():
            if bound in rolling and not is_valid(rolling[bound]):
                field = f"spec.{name}.rollingUpdate.{bound}"
                causes.append(invalid_value(field, str(rolling[bound]), detail))
    return causes


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _HIGHEST


def _is_bound(value: Any) -> bool:
    text = str(value).removesuffix("%")
    return _is_count(value) or (isinstance(value, str) and value.endswith("%") and text.isdecimal())


_BOUNDS: Final = {
    "maxSurge": (_is_bound, "must be a number or a percentage"),
    "maxUnavailable": (_is_bound, "must be a number or a percentage"),
    "partition": (_is_count, _NOT_A_COUNT),
}
"""field of a rolling update -> what checks it, and what is said of a wrong value."""
