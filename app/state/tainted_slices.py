"""The ResourceSlices with the taints of DeviceTaintRules (Kubernetes 1.37; KEP-5055)."""

from typing import Final

import msgspec

from app.model.devices import Device, DeviceTaint, DeviceTaintRule, ResourceSlice
from app.state.lister import Lister


class TaintedSlices(Lister[ResourceSlice]):
    """Follows slices and rules: each slice, with the taints of the rules that select some of its devices."""

    def __init__(self, slices: Lister[ResourceSlice], rules: Lister[DeviceTaintRule]) -> None:
        super().__init__()
        self._slices: Final = slices
        self._rules: Final = rules
        for one in slices:
            self.store(self._tainted(one))
        slices.follow(self._slice_changed)
        rules.follow(self._rule_changed)

    def _slice_changed(self, old: ResourceSlice | None, new: ResourceSlice | None) -> None:
        if new is not None:
            self.store(self._tainted(new))
        elif old is not None:
            self.remove(old)

    def _rule_changed(self, old: DeviceTaintRule | None, new: DeviceTaintRule | None) -> None:
        changed = [rule for rule in (old, new) if rule is not None]
        for one in list(self._slices):
            if any(_selects(rule, one) for rule in changed):
                self.store(self._tainted(one))

    def _tainted(self, one: ResourceSlice) -> ResourceSlice:
        rules = [rule for rule in self._rules if _selects(rule, one)]
        if not rules:
            return one
        devices = tuple(_with_taints(device, rules) for device in one.spec.devices or ())
        spec = msgspec.structs.replace(one.spec, devices=devices)
        return msgspec.structs.replace(one, spec=spec)


def _selects(rule: DeviceTaintRule, one: ResourceSlice) -> bool:
    """Whether a rule may select devices of a slice. Without a selector it selects none, with an empty one all."""
    selector = rule.spec.device_selector
    return (
        selector is not None
        and selector.driver in {None, one.spec.driver}
        and selector.pool in {None, one.spec.pool.name}
    )


def _with_taints(device: Device, rules: list[DeviceTaintRule]) -> Device:
    taints: list[DeviceTaint] = []
    for rule in rules:
        selector = rule.spec.device_selector
        if selector is not None and selector.device in {None, device.name}:
            taints.append(rule.spec.taint)
    if not taints:
        return device
    return msgspec.structs.replace(device, taints=(*(device.taints or ()), *taints))
