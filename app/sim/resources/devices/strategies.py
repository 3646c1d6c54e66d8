"""The rules of the kinds of resource.k8s.io/v1."""

from typing import Final

from app.model.requests import is_extended
from app.sim.errors import Cause, forbidden_value, invalid_value
from app.sim.lookup import Lookup
from app.sim.resources.devices.allocation import drop_freed_devices, results_of, status_mistakes
from app.sim.resources.devices.checks import driver_name, each, label, opaque, pool_name
from app.sim.resources.devices.checks import taint as taint_mistakes
from app.sim.resources.devices.requests import (
    MAX_CONFIGURATIONS,
    selector_mistakes,
    spec_mistakes,
)
from app.sim.resources.devices.slices import slice_mistakes, slice_update_mistakes
from app.sim.resources.strategy import FreshStatus, WithoutStatus
from app.sim.resources.validation import label_key_mistakes, label_mistakes
from app.sim.store import Object

_ADMIN_ACCESS: Final = "resource.kubernetes.io/admin-access"
"""The label of namespaces ("true") in which claims may have admin access."""
_TEMPLATE_METADATA: Final = ("annotations", "labels")


class DeviceClassStrategy(WithoutStatus):
    """A class selects and configures devices."""

    def create_mistakes(self, value: Object, api: Lookup) -> list[Cause]:  # noqa: ARG002
        return _class_mistakes(value.get("spec", {}))

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:  # noqa: ARG002
        return _class_mistakes(value.get("spec", {}))


class ResourceClaimStrategy(FreshStatus):
    """A claim is created without status; its spec stays as it is."""

    def __init__(self) -> None:
        super().__init__({})

    def create_mistakes(self, value: Object, api: Lookup) -> list[Cause]:
        spec = value.get("spec", {})
        return _admin_mistakes(value, spec, api) + spec_mistakes(spec, "spec")

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        return _spec_change(value, old)

    def prepare_status(self, value: Object, old: Object) -> None:
        """Nothing but the status changes."""
        value["metadata"] = dict(old["metadata"])
        value.setdefault("status", {})
        drop_freed_devices(value["status"], old.get("status", {}))

    def status_mistakes(self, value: Object, old: Object, api: Lookup) -> list[Cause]:
        granted = any(result.get("adminAccess") for result in results_of(old.get("status", {})))
        causes = [] if granted else _admin_result_mistakes(value, api)
        return causes + status_mistakes(value, old)


class ResourceClaimTemplateStrategy(WithoutStatus):
    """A template is the spec of claims, which stays as it is, and their labels and annotations."""

    def create_mistakes(self, value: Object, api: Lookup) -> list[Cause]:
        spec = value.get("spec", {})
        return _admin_mistakes(value, spec.get("spec", {}), api) + _template_mistakes(spec)

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        return _template_mistakes(value.get("spec", {})) + _spec_change(value, old)


class ResourceSliceStrategy(WithoutStatus):
    """A slice's driver, pool and node are immutable; its devices are not."""

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        _date_taints(value, api)

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:  # noqa: ARG002
        _date_taints(value, api)

    def mistakes(self, value: Object) -> list[Cause]:
        return slice_mistakes(value)

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        return slice_update_mistakes(value, old)


class DeviceTaintRuleStrategy(FreshStatus):
    """A rule gives a taint to devices; which ones does not change."""

    def __init__(self) -> None:
        super().__init__({})

    def prepare_for_create(self, value: Object, api: Lookup) -> None:
        super().prepare_for_create(value, api)
        taint = value.get("spec", {}).get("taint")
        if isinstance(taint, dict):
            taint.setdefault("timeAdded", api.timestamp())

    def prepare_for_update(self, value: Object, old: Object, api: Lookup) -> None:
        super().prepare_for_update(value, old, api)
        taint, before = value.get("spec", {}).get("taint") or {}, old["spec"]["taint"]
        if taint.get("effect") != before.get("effect"):
            taint["timeAdded"] = api.timestamp()

    def mistakes(self, value: Object) -> list[Cause]:
        spec = value.get("spec") or {}
        selector, path = spec.get("deviceSelector") or {}, "spec.deviceSelector"
        causes = []
        for name, check in (("driver", driver_name), ("pool", pool_name), ("device", label)):
            if selector.get(name) is not None:
                causes += check(selector[name], f"{path}.{name}")
        return causes + taint_mistakes(spec.get("taint") or {}, "spec.taint")

    def update_mistakes(self, value: Object, old: Object) -> list[Cause]:
        selectors = [each["spec"].get("deviceSelector") or {} for each in (value, old)]
        if selectors[0] == selectors[1]:
            return []
        return [invalid_value("spec.deviceSelector", selectors[0], "field is immutable")]

    def prepare_status(self, value: Object, old: Object) -> None:
        """Nothing but the status changes."""
        value["metadata"] = dict(old["metadata"])
        value.setdefault("status", {})


def _class_mistakes(spec: Object) -> list[Cause]:
    causes = selector_mistakes(spec.get("selectors", []), "spec.selectors")
    causes += each(spec.get("config", ()), "spec.config", opaque, most=MAX_CONFIGURATIONS)
    resource = spec.get("extendedResourceName")
    if resource is not None and not is_extended(resource):
        detail = "must be a valid extended resource name"
        causes.append(invalid_value("spec.extendedResourceName", resource, detail))
    return causes


def _template_mistakes(spec: Object) -> list[Cause]:
    metadata = spec.get("metadata", {})
    causes = label_mistakes("spec.metadata.labels", metadata.get("labels", {}))
    for key in metadata.get("annotations", {}):
        causes += label_key_mistakes("spec.metadata.annotations", key.lower())
    causes += [
        forbidden_value(f"spec.metadata.{name}", "cannot be set")
        for name in metadata
        if name not in _TEMPLATE_METADATA
    ]
    return causes + spec_mistakes(spec.get("spec", {}), "spec.spec")


def _spec_change(value: Object, old: Object) -> list[Cause]:
    if value.get("spec", {}) == old["spec"]:
        return []
    return [invalid_value("spec", value.get("spec", {}), "field is immutable")]


def _date_taints(value: Object, api: Lookup) -> None:
    for device in value.get("spec", {}).get("devices", ()):
        for taint in device.get("taints", ()):
            taint.setdefault("timeAdded", api.timestamp())


def _admin_mistakes(value: Object, spec: Object, api: Lookup) -> list[Cause]:
    for index, request in enumerate(spec.get("devices", {}).get("requests", ())):
        if request.get("exactly", {}).get("adminAccess"):
            return _unlabelled(value, f"spec.devices.requests[{index}].adminAccess", api)
    return []


def _admin_result_mistakes(value: Object, api: Lookup) -> list[Cause]:
    for index, result in enumerate(results_of(value["status"])):
        if result.get("adminAccess"):
            path = f"status.allocation.devices.results[{index}].adminAccess"
            return _unlabelled(value, path, api)
    return []


def _unlabelled(value: Object, path: str, api: Lookup) -> list[Cause]:
    """The mistakes of requests for admin access in a namespace without the label for it."""
    if api.namespace_labels(value["metadata"]["namespace"]).get(_ADMIN_ACCESS) == "true":
        return []
    detail = (
        f"admin access to devices requires the `{_ADMIN_ACCESS}: true` label "
        "on the containing namespace"
    )
    return [forbidden_value(path, detail)]
