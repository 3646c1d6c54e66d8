"""ControllerRevisions: the templates that a StatefulSet or a DaemonSet had, for ``kubectl rollout history`` and
``undo``.
"""

from collections.abc import Collection, Sequence
from typing import Final

from app.sim.controllers.workloads.plan import Create, Delete, ObjectChange, Replace, Scene
from app.sim.controllers.workloads.templates import REVISION_LABEL, template_hash
from app.sim.objects import labels_of, owner_reference
from app.sim.resources.kinds import BY_RESOURCE
from app.sim.store import Object

CONTROLLER_REVISIONS: Final = BY_RESOURCE["controllerrevisions.apps"]


def current_revision(scene: Scene) -> tuple[str, list[ObjectChange]]:
    """The hash of the present template, and what makes its revision the newest one."""
    owner = scene.workload
    mark = template_hash(owner["spec"]["template"])
    newest = max((each.get("revision", 0) for each in scene.revisions), default=0)
    found = [each for each in scene.revisions if _mark(each) == mark]
    if not found:
        return mark, [Create(CONTROLLER_REVISIONS, _made(owner, mark, newest + 1), if_absent=True)]
    others = max(
        (each.get("revision", 0) for each in scene.revisions if each not in found), default=0
    )
    if found[0].get("revision", 0) > others:
        return mark, []
    return mark, [Replace(CONTROLLER_REVISIONS, found[0] | {"revision": newest + 1})]


def forgotten(scene: Scene, live: Collection[str]) -> list[ObjectChange]:
    """Deletes the oldest revisions that no pod has, beyond the limit of the history. ``live``: hashes in use."""
    limit = scene.workload["spec"].get("revisionHistoryLimit", 10)
    unused: Sequence[Object] = sorted(
        (each for each in scene.revisions if _mark(each) not in live),
        key=lambda each: int(each.get("revision", 0)),
    )
    return [Delete(CONTROLLER_REVISIONS, each) for each in unused[: max(0, len(unused) - limit)]]


def revision_name(owner: Object, mark: str) -> str:
    """The name of the revision with a hash."""
    return f"{owner['metadata']['name']}-{mark}"


def _mark(revision: Object) -> str:
    return labels_of(revision).get(REVISION_LABEL, "")


def _made(owner: Object, mark: str, number: int) -> Object:
    template = owner["spec"]["template"]
    given = (template.get("metadata") or {}).get("labels") or {}
    annotations = owner["metadata"].get("annotations") or {}
    return {
        "metadata": {
            "name": revision_name(owner, mark),
            "labels": given | {REVISION_LABEL: mark},
            "annotations": annotations,
            "ownerReferences": [owner_reference(owner)],
        },
        "data": {"spec": {"template": template | {"$patch": "replace"}}},
        "revision": number,
    }
