"""The resource requests and limits of pods (docs/spec/resources.md).

Amounts are summed exactly in nano-units and rounded once, into scheduler units: milli-CPUs for cpu, whole units
(bytes, devices) for everything else.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from app.model import quantity
from app.model.limits import MAX_RESOURCE_NAME, MAX_RESOURCES
from app.model.names import is_qualified_name
from app.model.objects import Container, ContainerStatus, PodSpec, ResourceRequirements, Resources

CPU: Final = "cpu"
MEMORY: Final = "memory"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
PODS: Final = "pods"

# Defaults for containers without a request, so that they count in scores
# (docs/spec/resources.md#non-zero-requests).
DEFAULT_MILLI_CPU: Final = 100
DEFAULT_MEMORY: Final = 200 * 1024 * 1024

#: Allocatable amounts are clamped to this, and requests to one more, so that larger requests fit nowhere. A
#: hundredfold (scores are percentages) and a sum of one hundred stay within int64.
LARGEST: Final = 2**56

_NONZERO_DEFAULTS: Final = {
    CPU: DEFAULT_MILLI_CPU * quantity.MICRO,
    MEMORY: DEFAULT_MEMORY * quantity.NANO,
}
#: Results for longer texts are not cached.
_MAX_REMEMBERED: Final = 64

#: Amounts by resource name, in nano-units or scheduler units.
Amounts = dict[str, int]


def is_extended(name: str) -> bool:
    """Whether ``name`` is an extended resource such as ``example.com/gpu``."""
    return len(name) <= MAX_RESOURCE_NAME and _is_extended(name)


@functools.lru_cache(maxsize=4096)
def _is_extended(name: str) -> bool:
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and is_qualified_name("requests." + name)
    )


def is_scalar(name: str) -> bool:
    """Whether ``name`` is a scalar resource: accounted for in addition to cpu, memory, ephemeral-storage and pods."""
    return (
        is_extended(name)
        or name.startswith(("hugepages-", "attachable-volumes-"))
        or "kubernetes.io/" in name
    )


def to_units(name: str, nanos: int) -> int:
    """Rounds an exact amount to scheduler units, milli for cpu, whole units otherwise: from 0 to LARGEST + 1.

    API servers reject negative amounts; others must not create free resources.
    """
    units = quantity.milli(nanos) if name == CPU else quantity.whole(nanos)
    return max(0, min(LARGEST + 1, units))


def accounted_units(amounts: Mapping[str, int]) -> Amounts:
    """The accounted resources among ``amounts`` (nano-units), in scheduler units; the pod count is left out."""
    return {
        name: to_units(name, nanos)
        for name, nanos in amounts.items()
        if name in {CPU, MEMORY, EPHEMERAL_STORAGE} or is_scalar(name)
    }


def allocatable_units(resources: Resources | None) -> Amounts:
    """A node's allocatable in scheduler units, ``pods`` included; invalid quantities count as absent."""
    amounts: Amounts = {}
    for name, text in (resources or {}).items():
        short = len(name) <= MAX_RESOURCE_NAME and len(str(text)) <= _MAX_REMEMBERED
        units = _allocatable(name, text) if short else _allocatable.__wrapped__(name, text)
        if units is not None:
            amounts[name] = units
    return amounts


@functools.lru_cache(maxsize=65536)
def _allocatable(name: str, text: str | float) -> int | None:
    """None for a resource that is not accounted for, or an invalid quantity."""
    if name not in {CPU, MEMORY, EPHEMERAL_STORAGE, PODS} and not is_scalar(name):
        return None
    try:
        return min(LARGEST, to_units(name, quantity.parse(text)))
    except quantity.QuantityError:
        return None


class StatusResources(msgspec.Struct, frozen=True):
    """The resources in a running pod's status during an in-place resize."""

    containers: Mapping[str, ContainerStatus]
    pod: ResourceRequirements | None = None
    allocated: Resources | None = None
    infeasible: bool = False
    #: Whether sums over the pod are compared, as from Kubernetes 1.37 on, not the resources of each container.
    sums: bool = False


class PodResources(msgspec.Struct, frozen=True):
    """The resources of a pod on a node.

    ``requested``: scheduler units by resource name, sorted; an explicit 0 is an entry too (kube-scheduler's Requested).
    ``nonzero_cpu`` (milli) and ``nonzero_memory`` (bytes): the same, with DEFAULT_MILLI_CPU and DEFAULT_MEMORY for
    each container without a request (kube-scheduler's NonZeroRequested).
    """

    requested: tuple[tuple[str, int], ...]
    nonzero_cpu: int
    nonzero_memory: int


def exact(resources: Resources | None) -> Amounts:
    """Parses a resource list into nano-units. Raises QuantityError."""
    return {name: quantity.parse(text) for name, text in (resources or {}).items()}


def _largest(many: Iterable[Mapping[str, int]]) -> Amounts:
    """The largest amount of each resource."""
    out: Amounts = {}
    for amounts in many:
        _keep_larger(out, amounts)
    return out


def _keep_larger(out: Amounts, amounts: Mapping[str, int]) -> None:
    """Sets each amount in ``out`` to the maximum of both."""
    for name, nanos in amounts.items():
        if name not in out or nanos > out[name]:
            out[name] = nanos


def _add(total: Amounts, amounts: Mapping[str, int]) -> None:
    for name, nanos in amounts.items():
        total[name] = total.get(name, 0) + nanos


def _with_status(own: Amounts, status: ContainerStatus | None, *, infeasible: bool) -> Amounts:
    """A container's request during a resize: the largest of its spec, its actual and its allocated resources.

    The spec does not count if the kubelet has marked the resize ``infeasible`` (docs/spec/resources.md#pod-requests).
    """
    if status is None or status.resources is None:
        return own
    running = exact(status.resources.requests)
    allocated = exact(status.allocated_resources)
    return _largest((running, allocated) if infeasible else (own, running, allocated))


def _check_count(amounts: Amounts) -> None:
    """Raises QuantityError for more resources than the limit."""
    if len(amounts) > MAX_RESOURCES:
        raise quantity.QuantityError(f"more than {MAX_RESOURCES} resources")


class _Sum:
    """Adds up the requests of a pod's containers, in nano-units (docs/spec/resources.md#pod-requests)."""

    def __init__(self, status: StatusResources | None, defaults: Mapping[str, int]) -> None:
        """``status``: included if given; ``defaults``: defaults for containers without a request."""
        self._status = status
        self._defaults = defaults

    def container(self, container: Container, *, resizable: bool = True) -> Amounts:
        """The request of one container; its status counts only if it is ``resizable``."""
        amounts = exact(container.resources.requests if container.resources else None)
        if self._status is not None and resizable:
            status = self._status.containers.get(container.name)
            amounts = _with_status(amounts, status, infeasible=self._status.infeasible)
        return {**self._defaults, **amounts} if self._defaults else amounts

    def pod(self, spec: PodSpec) -> Amounts:
        """The sum over containers and sidecars, or the largest request of any initialisation step if that is more.

        A step is an init container with the sidecars started before it. A resource that the init container does not
        request keeps its amount from the previous step.
        """
        total: Amounts = {}
        for container in spec.containers:
            _add(total, self.container(container))
            _check_count(total)
        sidecars: Amounts = {}
        largest: Amounts = {}
        for container in spec.init_containers or ():
            always = container.restart_policy == "Always"
            own = self.container(container, resizable=always)
            if always:
                _add(total, own)
                _add(sidecars, own)
                step = {name: sidecars[name] for name in own}
            else:
                step = {name: sidecars.get(name, 0) + nanos for name, nanos in own.items()}
            _keep_larger(largest, step)
            _check_count(total)
            _check_count(largest)
        return _largest((total, largest))


def _in_spec(container: Container, _status: ContainerStatus | None, *, infeasible: bool) -> Amounts:  # noqa: ARG001
    return exact(container.resources.requests if container.resources else None)


def _allocated(
    container: Container, status: ContainerStatus | None, *, infeasible: bool
) -> Amounts:
    if status is not None and status.allocated_resources is not None:
        return exact(status.allocated_resources)
    return {} if infeasible else _in_spec(container, status, infeasible=False)


def _actuated(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> Amounts:
    if (
        status is not None
        and status.resources is not None
        and status.resources.requests is not None
    ):
        return exact(status.resources.requests)
    return _allocated(container, status, infeasible=infeasible)


class _SumOf(_Sum):
    """Adds up what a function says of each container, init containers included."""

    def __init__(
        self,
        status: StatusResources,
        defaults: Mapping[str, int],
        amounts: Callable[..., Amounts],
    ) -> None:
        super().__init__(status, defaults)
        self._containers: Final = status.containers
        self._infeasible: Final = status.infeasible
        self._amounts: Final = amounts

    def container(self, container: Container, *, resizable: bool = True) -> Amounts:  # noqa: ARG002 - as in _Sum
        """What the function says of one container."""
        status = self._containers.get(container.name)
        amounts = self._amounts(container, status, infeasible=self._infeasible)
        return {**self._defaults, **amounts}


def _largest_sum(spec: PodSpec, status: StatusResources, defaults: Mapping[str, int]) -> Amounts:
    """The largest of what the spec, the allocated and the actuated resources add up to.

    The spec does not count if the resize is infeasible. Sums that the kubelet has written for the whole pod take
    precedence.
    """
    sums = [] if status.infeasible else [_SumOf(status, defaults, _in_spec).pod(spec)]
    running = None if status.pod is None else status.pod.requests
    if running is not None and status.allocated is not None:
        sums += [exact(running), exact(status.allocated)]
    else:
        sums += [_SumOf(status, defaults, amounts).pod(spec) for amounts in (_actuated, _allocated)]
    return _largest(sums)


class _LimitSum(_Sum):
    """Adds up limits instead of requests."""

    def container(self, container: Container, *, resizable: bool = True) -> Amounts:  # noqa: ARG002 - as in _Sum
        """The limits of one container."""
        return exact(container.resources.limits if container.resources else None)


def _pod_level(spec: PodSpec) -> Amounts:
    """The requests of the pod as a whole, spec.resources; they replace the sum over its containers (step 5)."""
    if spec.resources is None or not spec.resources.requests:
        return {}
    return {
        name: nanos
        for name, nanos in exact(spec.resources.requests).items()
        if _pod_level_name(name)
    }


def _pod_level_name(name: str) -> bool:
    return name in {CPU, MEMORY} or name.startswith("hugepages-")


def _pod_level_with_status(spec: PodSpec, status: StatusResources | None) -> Amounts:
    own = _pod_level(spec)
    if not own or status is None or status.pod is None:
        return own
    running = exact(status.pod.requests)
    allocated = exact(status.allocated)
    seen = _largest((running, allocated) if status.infeasible else (own, running, allocated))
    if status.sums:
        return {name: nanos for name, nanos in seen.items() if _pod_level_name(name)}
    return {name: seen.get(name, 0) for name in own}


def pod_requests(
    spec: PodSpec,
    status: StatusResources | None = None,
    *,
    pod_level: bool = True,
    nonzero: bool = False,
    defaults: Mapping[str, int] | None = None,
) -> Amounts:
    """The pod's exact request in nano-units by resource name.

    ``status`` makes it status-aware (in-place resize), ``pod_level=False`` ignores spec.resources, ``nonzero`` replaces
    missing cpu and memory requests of each container by kube-scheduler's defaults, ``defaults`` by others. Raises
    QuantityError for invalid quantities.
    """
    missing = _NONZERO_DEFAULTS if nonzero else defaults or {}
    if status is not None and status.sums:
        total = _largest_sum(spec, status, missing)
    else:
        total = _Sum(status, missing).pod(spec)
    if pod_level:
        total.update(_pod_level_with_status(spec, status))
    _add(total, exact(spec.overhead))
    return total


def pod_limits(spec: PodSpec) -> Amounts:
    """The pod's exact limits in nano-units by resource name; overhead counts where there is a limit. Raises
    QuantityError."""
    total = _LimitSum(None, {}).pod(spec)
    if spec.resources is not None:
        limits = exact(spec.resources.limits)
        total.update({name: nanos for name, nanos in limits.items() if _pod_level_name(name)})
    overhead = exact(spec.overhead)
    _add(total, {name: nanos for name, nanos in overhead.items() if total.get(name)})
    return total


def pod_resources(spec: PodSpec, status: StatusResources | None = None) -> PodResources:
    """The resources of a pod with this spec (and status) on its node.

    See docs/spec/resources.md#which-requests-are-used-where.
    """
    plain = pod_requests(spec, status)
    return resources_from(plain, nonzero_requests(spec, status, plain))


def resources_from(plain: Amounts, nonzero: Amounts) -> PodResources:
    """The same from the requests without and with defaults, in nano-units."""
    requested = accounted_units(plain)
    scored = requested if nonzero is plain else accounted_units(nonzero)
    return PodResources(tuple(sorted(requested.items())), scored.get(CPU, 0), scored.get(MEMORY, 0))


def need_no_defaults(spec: PodSpec) -> bool:
    """Whether every container requests cpu and memory, so that kube-scheduler's defaults for them change nothing."""
    for container in (*spec.containers, *(spec.init_containers or ())):
        wanted = None if container.resources is None else container.resources.requests
        if not wanted or CPU not in wanted or MEMORY not in wanted:
            return False
    return True


def nonzero_requests(spec: PodSpec, status: StatusResources | None, plain: Amounts) -> Amounts:
    """The request with defaults; with pod-level requests, defaults only for resources that these lack."""
    if not _pod_level(spec):
        return pod_requests(spec, status, nonzero=True)
    missing = {name: nanos for name, nanos in _NONZERO_DEFAULTS.items() if name not in plain}
    return pod_requests(spec, status, defaults=missing) if missing else plain
