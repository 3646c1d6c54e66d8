"""Extended resources that devices provide: the claim for a pod that requests them (KEP-5004).

At first the claim exists in memory only, with a name that no object can have. PreBind creates it. Its requests depend
on the node, because resources that the node advertises itself need no devices.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from app.model import quantity
from app.model.devices import (
    EXTENDED_RESOURCE_CLAIM,
    ClaimMeta,
    DeviceRequest,
    ExactDeviceRequest,
    ResourceClaim,
)
from app.model.objects import Container, OwnerReference
from app.model.pod import Pod, PodTemplate
from app.state.devices import ClassesByResource

#: The name of a claim that is not written yet.
UNWRITTEN: Final = "<extended-resources>"


class RequestMapping(NamedTuple):
    """The request of the claim for a resource of a container (ContainerExtendedResourceRequest)."""

    container: str
    resource: str
    request: str


class Requests(NamedTuple):
    """The requests of a claim for extended resources, and the containers that they are for."""

    requests: tuple[DeviceRequest, ...]
    mappings: tuple[RequestMapping, ...]


def unwritten_claim(pod: Pod) -> ResourceClaim:
    """The claim before a node is chosen. Its uid is only used to track devices in flight."""
    owner = OwnerReference("Pod", pod.name, pod.uid, controller=True, api_version="v1")
    return ResourceClaim(
        metadata=ClaimMeta(
            name=UNWRITTEN,
            namespace=pod.namespace,
            uid=f"{UNWRITTEN}/{pod.uid}",
            annotations={EXTENDED_RESOURCE_CLAIM: "true"},
            owner_references=(owner,),
            generate_name=f"{pod.name}-extended-resources-",
        )
    )


def is_unwritten(claim: ResourceClaim) -> bool:
    """Whether the claim does not exist in the API server yet."""
    return claim.name == UNWRITTEN


class _Numbered(NamedTuple):
    number: int
    container: Container
    long_lived: bool  # true for containers and sidecars, false for init containers


def requests_for(
    template: PodTemplate, resources: Iterable[str], classes: ClassesByResource
) -> Requests:
    """The device requests of a pod's containers for these resources.

    Containers and sidecars need devices of their own. An init container can use those of the containers that start
    after it. Of what init containers need in addition only the largest number counts, because they run one after
    another.
    """
    spec = template.spec
    first = spec.init_containers or ()
    containers = [
        _Numbered(number, one, number >= len(first) or one.restart_policy == "Always")
        for number, one in enumerate((*first, *spec.containers))
    ]
    requests: list[DeviceRequest] = []
    mappings: list[RequestMapping] = []
    for resource in sorted(resources):
        behind = classes.get(resource)
        if behind is not None:
            found = _requests_for(resource, behind.name, containers)
            requests += found.requests
            mappings += found.mappings
    return Requests(tuple(sorted(requests, key=lambda r: r.name)), tuple(mappings))


def _requests_for(resource: str, class_name: str, containers: Sequence[_Numbered]) -> Requests:
    lasting: dict[int, tuple[str, int]] = {}
    mappings: list[RequestMapping] = []
    for one in containers:
        count = _count(one.container, resource)
        if one.long_lived and count:
            name = _request_name(one, resource)
            lasting[one.number] = (name, count)
            mappings.append(RequestMapping(one.container.name, resource, name))
    passing: list[tuple[str, int]] = []
    reused: list[RequestMapping] = []
    for one in containers:
        missing = 0 if one.long_lived else _count(one.container, resource)
        for name, count in (each for at, each in lasting.items() if at > one.number):
            if missing > 0:
                reused.append(RequestMapping(one.container.name, resource, name))
                missing -= count
        if missing > 0:
            name = _request_name(one, resource)
            passing.append((name, missing))
            reused.append(RequestMapping(one.container.name, resource, name))
    largest = max(passing, key=lambda request: request[1], default=None)
    names = {name for name, _ in passing}
    if largest is not None:
        reused = [m._replace(request=largest[0]) if m.request in names else m for m in reused]
    requests = [*([largest] if largest is not None else []), *lasting.values()]
    return Requests(
        tuple(
            DeviceRequest(
                name,
                ExactDeviceRequest(class_name, allocation_mode="ExactCount", count=count),
            )
            for name, count in requests
        ),
        (*mappings, *reused),
    )


def _request_name(one: _Numbered, resource: str) -> str:
    """The name of a request, from the indexes of the container in the pod and of the resource in the container, by
    name."""
    return f"container-{one.number}-request-{sorted(_amounts(one.container)).index(resource)}"


def _amounts(container: Container) -> dict[str, str | float]:
    resources = container.resources
    return dict((resources.requests if resources is not None else None) or {})


def _count(container: Container, resource: str) -> int:
    """The number of devices that a container requests; 0 for an amount that is not whole, which API servers refuse."""
    whole, rest = divmod(quantity.parse(_amounts(container).get(resource, 0)), quantity.NANO)
    return 0 if rest else whole
