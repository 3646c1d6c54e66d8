"""The rules by which objects are created and updated: the common ones, and those of single kinds.

``prepare_*`` change the new object in place, after defaulting; ``*mistakes`` judge it. All of it happens between the
decoding of a request and the write, without awaiting anything.
"""

from collections.abc import Mapping
from typing import Final

from app.sim.errors import Cause, forbidden, forbidden_value, invalid_value
from app.sim.lookup import Lookup
from app.sim.resources.kinds import PRIORITY_CLASSES
from app.sim.resources.priority import HIGHEST_USER_PRIORITY, SYSTEM_CLASSES
from app.sim.selectors import selects_labels
from app.sim.store import Object

_BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_DEFAULT_CLASS: Final = (
    "storageclass.kubernetes.io/is-default-class",
    "storageclass.beta.kubernetes.io/is-default-class",
)


class KindStrategy:
    """The common rules: status is written through the status subresource only."""

    def admit(self, value: Object, api: Lookup) -> None:
        """Changes a new object before it is validated. May raise 403."""

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        """Changes a new object that is valid, before it is stored. May raise 403."""

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:  # noqa: ARG002
        """Changes an updated object; ``old`` must not be changed."""
        value.pop("status", None)
        if "status" in old:
            value["status"] = old["status"]

    def mistakes(self, value: Object) -> list[Cause]:  # noqa: ARG002
        """Returns what is wrong with an object, new or updated."""
        return []

    def create_mistakes(self, value: Object, api: Lookup) -> list[Cause]:  # noqa: ARG002
        """Returns what else is wrong with a new object."""
        return []

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:  # noqa: ARG002
        """Returns what is wrong with the change."""
        return []

    def prepare_status(self, value: Object, old: Object) -> None:
        """Changes an object with a new status; ``old`` must not be changed."""

    def status_mistakes(self, value: Object, old: Object, api: Lookup) -> list[Cause]:  # noqa: ARG002
        """Returns what is wrong with a new status."""
        return []


class WithoutStatus(KindStrategy):
    """Kinds without a status subresource."""

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        """Keeps the object as given."""


class FreshStatus(KindStrategy):
    """Kinds whose status a client cannot give at creation."""

    def __init__(self, status: Mapping[str, object]) -> None:
        self._status = status

    def prepare_for_create(self, value: Object, api: Lookup) -> None:  # noqa: ARG002
        value["status"] = dict(self._status)


class ClaimStrategy(FreshStatus):
    """A claim without a class gets the default one: the newest, and of equally old ones the first by name."""

    def __init__(self) -> None:
        super().__init__({"phase": "Pending"})

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        super().prepare_for_create(value, api)
        if "storageClassName" in value["spec"] or _names_class(value):
            return
        found = sorted(
            (each["metadata"] for each in api.storage_classes() if _is_default(each)),
            key=lambda metadata: metadata["name"],
        )
        if found:
            newest = max(found, key=lambda metadata: metadata["creationTimestamp"])
            value["spec"]["storageClassName"] = newest["name"]


def _names_class(claim: Object) -> bool:
    """Whether the beta annotation names a class."""
    return _BETA_CLASS in claim["metadata"].get("annotations", {})


def _is_default(storage_class: Object) -> bool:
    annotations = storage_class["metadata"].get("annotations", {})
    return any(annotations.get(name) == "true" for name in _DEFAULT_CLASS)


class PriorityClassStrategy(WithoutStatus):
    """The value of a class is fixed, and bounded for all but the system's own; one class is the default."""

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        for other in api.priority_classes():
            if value.get("globalDefault") and other.get("globalDefault"):
                name = other["metadata"]["name"]
                why = (
                    f"PriorityClass {name} is already marked as default. Only one default can exist"
                )
                raise forbidden(PRIORITY_CLASSES, value["metadata"]["name"], why)

    def mistakes(self, value: Object) -> list[Cause]:
        name = value["metadata"]["name"]
        if name.startswith("system-"):
            if name in SYSTEM_CLASSES:
                return []
            detail = (
                "priority class names with 'system-' prefix are reserved for system use only. "
                f"error: {name} is not a known system priority class"
            )
            return [forbidden_value("metadata.name", detail)]
        if value["value"] > HIGHEST_USER_PRIORITY:
            detail = f"maximum allowed value of a user defined priority is {HIGHEST_USER_PRIORITY}"
            return [forbidden_value("value", detail)]
        return []

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        return [
            forbidden_value(field, "may not be changed in an update.")
            for field in ("value", "preemptionPolicy")
            if value[field] != old[field]
        ]


class DisruptionBudgetStrategy(KindStrategy):
    """A budget has one bound, which is a number or a percentage, and a valid selector."""

    def mistakes(self, value: Object) -> list[Cause]:
        spec = value["spec"]
        selects_labels(spec.get("selector"))
        bounds = [name for name in ("minAvailable", "maxUnavailable") if name in spec]
        if len(bounds) > 1:
            detail = "minAvailable and maxUnavailable cannot be both set"
            return [invalid_value("spec", ", ".join(bounds), detail)]
        return [
            invalid_value(f"spec.{name}", str(spec[name]), "must be a number or a percentage")
            for name in bounds
            if not _is_bound(spec[name])
        ]


def _is_bound(value: object) -> bool:
    if isinstance(value, int):
        return value >= 0
    return isinstance(value, str) and value.endswith("%") and value[:-1].isdigit()


WITH_STATUS: Final = KindStrategy()
WITHOUT_STATUS: Final = WithoutStatus()
