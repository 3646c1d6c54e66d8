"""A device, and expressions evaluated for it."""

from app.cel.program import Program, view
from app.model.devices import Device, DeviceAttribute, DeviceCapacity

DRIVER = "gpu.example.com"
DEVICE = Device(
    name="gpu-0",
    attributes={
        "family": DeviceAttribute(string="Volta"),
        "index": DeviceAttribute(integer=3),
        "shared": DeviceAttribute(boolean=True),
        "version": DeviceAttribute(version="1.2.3-rc.1"),
        "other.io/address": DeviceAttribute(string="10.1.2.3"),
    },
    capacity={"memory": DeviceCapacity(value="16Gi"), "other.io/cores": DeviceCapacity("1500m")},
)


def run(expression: str, device: Device = DEVICE) -> bool:
    """The result of an expression."""
    return Program(expression).run(view(DRIVER, device))[0]


def cost(expression: str) -> int:
    """The cost of an expression."""
    return Program(expression).run(view(DRIVER, DEVICE))[1]
