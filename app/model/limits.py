"""Limits for the contents of objects. Objects that exceed them are refused, so that no object delays all others.

Real objects stay far below. ``python -m tests.fuzz.brims`` measures the cost of objects at a limit.
"""

from typing import Annotated, Final, TypeVar

import msgspec

T = TypeVar("T")

#: Entries of a list or map without a limit in Kubernetes, such as tolerations or labels.
MAX_ENTRIES: Final = 1000
#: Entries of a list or map that Kubernetes limits to 32 or less (most lists of resource.k8s.io).
MAX_LIMITED: Final = 64
#: Ports of a container. Those without a port of the host cost nothing but reading.
MAX_PORTS: Final = 10_000
#: Values of one requirement of a selector: these are looked up, not tried one by one.
MAX_VALUES: Final = 20_000
#: Resources that a node offers, or that a container or a pod asks for, and characters of a resource's name (253 + 1 +
#: 63).
MAX_RESOURCES: Final = 256
MAX_RESOURCE_NAME: Final = 317
#: Characters of a name, a namespace, a uid or a resourceVersion (253).
MAX_NAME: Final = 512
#: Devices of a slice, of which Kubernetes allows 128; results of a claim and its consumers (32 and 256).
MAX_DEVICES: Final = 512
#: Fields in all results of a claim: 512 results of 40 fields. Kubernetes allows 32 results.
MAX_RESULT_FIELDS: Final = 20_480
#: Characters of an expression that selects devices (10,240).
MAX_EXPRESSION: Final = 16_384
#: Image names of a node that are used; the others are ignored.
MAX_IMAGE_NAMES: Final = 10_000
#: Bytes of an object that are read, with little for each container and nothing for what is not read, such as
#: managedFields. Objects smaller than this are read without a look at it.
MAX_READ_BYTES: Final = 512 * 1024
MAX_UNCHECKED_BYTES: Final = 256 * 1024
#: Bytes of what is read of a pod's spec, as JSON, and the objects in it: containers, terms, requirements, and so on,
#: but not ports without a port of the host.
MAX_SPEC_BYTES: Final = 256 * 1024
MAX_SPEC_OBJECTS: Final = 1000

Many = Annotated[tuple[T, ...], msgspec.Meta(max_length=MAX_ENTRIES)]
Few = Annotated[tuple[T, ...], msgspec.Meta(max_length=MAX_LIMITED)]
Ports = Annotated[tuple[T, ...], msgspec.Meta(max_length=MAX_PORTS)]
Values = Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_VALUES)]
ManyDevices = Annotated[tuple[T, ...], msgspec.Meta(max_length=MAX_DEVICES)]
TextMap = Annotated[dict[str, str], msgspec.Meta(max_length=MAX_ENTRIES)]
FewByName = Annotated[dict[str, T], msgspec.Meta(max_length=MAX_LIMITED)]
Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME)]
ResourceName = Annotated[str, msgspec.Meta(max_length=MAX_RESOURCE_NAME)]
ByResource = Annotated[dict[ResourceName, T], msgspec.Meta(max_length=MAX_RESOURCES)]
Expression = Annotated[str, msgspec.Meta(max_length=MAX_EXPRESSION)]
