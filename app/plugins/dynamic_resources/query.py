"""What claims request of devices, and what each device is to these requests (KEP-4381).

The search only depends on what the claims' selectors, tolerations, capacities and constraints make of a device.
Devices that do not differ in this have the same ``DeviceProfile``, and nodes with the same sequence of profiles get
the same result.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from app.cel.devices import DeviceSelectorError, Selectors
from app.cel.errors import EvaluationExpired
from app.model.devices import (
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    ExactDeviceRequest,
)
from app.model.features import Rule
from app.plugins.dynamic_resources.budget import AllocationTimeout, Budget
from app.plugins.dynamic_resources.capacity import CapacityAmount, DeviceCapacities
from app.plugins.dynamic_resources.constraints import AttributeValue, attribute_of, look_up
from app.plugins.dynamic_resources.pools import DeviceTraits, Offer, PoolView
from app.plugins.helpers.tolerations import tolerates
from app.state.lister import Lister


class SelectorFault(NamedTuple):
    """A selector that failed for a device. ``device_class`` is the class that has the selector, "" if the claim has
    it; ``place`` its index there."""

    device_class: str
    place: int
    compiling: bool
    text: str

    def message(self, claim: str, device: str) -> str:
        """What is said about it; ``device`` is named at a runtime error, unless it is ""."""
        owner = f"class {self.device_class}" if self.device_class else f"claim {claim}"
        if self.compiling:
            return f"{owner}: selector #{self.place}: CEL compile error: {self.text}"
        if not device:
            return f"{owner}: selector #{self.place}: CEL runtime error: {self.text}"
        hint = _HINT if _NO_KEY in self.text else ""
        return f"{owner}: selector #{self.place} on device {device}: CEL runtime error: {self.text}{hint}"


class CapacityFault(NamedTuple):
    """A request for an amount of a device's capacity that is an error."""

    request: str
    text: str

    def message(self, claim: str, device: str) -> str:
        """What is said about it."""
        about = f"claim {claim}, request {self.request}"
        return f"{about}: checking capacity for device {device}: {self.text}"


FAULTS: Final = (SelectorFault, CapacityFault)
_NO_KEY: Final = "no such key:"
_HINT: Final = (
    ". consider using CEL optional chaining (.? followed by orValue()) or guarding the check with has() "
    "for optional fields"
)
#: Whether the selectors accept a device, or the fault of one, or of a request for its capacity.
SelectorResult = bool | SelectorFault | CapacityFault


class _Test(NamedTuple):
    """A selector, and its index among those of the class, or of the claim's request if ``device_class`` is ""."""

    device_class: str
    place: int
    expression: str


class RequestQuery:
    """A request without alternatives, or one alternative of a request.

    ``claim`` is the index of the claim, ``place`` that of the request in the claim, ``alternative`` that of the
    alternative (None if the request has none). ``tests`` are the selectors of the class and of the request. ``error``
    is why the request is invalid, the text after "claim <claim>, request <request>".
    """

    __slots__ = (
        "admin_access",
        "alternative",
        "claim",
        "constraints",
        "count",
        "device_class",
        "error",
        "every",
        "full_name",
        "name",
        "names",
        "place",
        "spec",
        "tests",
    )

    def __init__(
        self,
        claim: int,
        place: int,
        request: DeviceRequest,
        alternative: int | None,
        classes: Lister[DeviceClass],
    ) -> None:
        self.claim: Final = claim
        self.place: Final = place
        self.alternative: Final = alternative
        self.name = self.full_name = request.name
        self.spec: ExactDeviceRequest | DeviceSubRequest = request.exactly or ExactDeviceRequest()
        self.admin_access = bool(self.spec.admin_access)
        if alternative is not None:
            self.spec = (request.first_available or ())[alternative]
            self.name, self.full_name = self.spec.name, f"{request.name}/{self.spec.name}"
            self.admin_access = False
        #: The names by which constraints and configurations can refer to it.
        self.names: Final = frozenset({request.name, self.full_name})
        self.device_class: Final = classes.get(self.spec.device_class_name)
        #: Whether it requests all devices.
        self.every: Final = self.spec.allocation_mode == "All"
        self.count: Final = self.spec.count
        self.error: Final = self._find_error()
        #: Indexes of the constraints that apply to it.
        self.constraints: tuple[int, ...] = ()
        self.tests: Final = tuple(self._find_tests())

    def _find_tests(self) -> Iterator[_Test]:
        if self.device_class is not None:
            name = self.device_class.name
            for owner, selectors in (
                (name, self.device_class.spec.selectors),
                ("", self.spec.selectors),
            ):
                for number, selector in enumerate(selectors or ()):
                    yield _Test(
                        owner, number, "" if selector.cel is None else selector.cel.expression
                    )

    def _find_error(self) -> str | None:
        for number, selector in enumerate(self.spec.selectors or ()):
            if selector.cel is None:
                return f", selector #{number}: CEL expression empty (unsupported selector type?)"
        name, mode = self.spec.device_class_name, self.spec.allocation_mode
        if not name:
            return ": missing device class name (unsupported request type?)"
        if self.device_class is None:
            return (
                f": could not retrieve device class {name}: "
                f'deviceclass.resource.k8s.io "{name}" not found'
            )
        if mode not in {"All", "ExactCount"}:
            return f": unsupported count mode {mode}"
        return None


class ClaimQuery:
    """The requests of one claim: for each a list of its alternatives, or of the request itself if it has none."""

    __slots__ = ("constraint_error", "constraints", "requests")

    def __init__(self, number: int, devices: DeviceClaim, classes: Lister[DeviceClass]) -> None:
        self.constraints: Final[tuple[DeviceConstraint, ...]] = devices.constraints or ()
        self.requests: Final[list[list[RequestQuery]]] = []
        for place, request in enumerate(devices.requests or ()):
            count = len(request.first_available or ())
            alternatives: list[int | None] = [*range(count)] if count else [None]
            own = [RequestQuery(number, place, request, each, classes) for each in alternatives]
            for each in own:
                each.constraints = tuple(
                    place
                    for place, constraint in enumerate(self.constraints)
                    if not constraint.requests or not each.names.isdisjoint(constraint.requests)
                )
            self.requests.append(own)
        self.constraint_error: Final = next(
            (
                f", constraint #{place}: empty constraint (unsupported constraint type?)"
                for place, constraint in enumerate(self.constraints)
                if attribute_of(constraint) is None
            ),
            None,
        )


class DeviceProfile:
    """What a device is to the claims, except for its attributes in constraints. Equal devices share one object.

    The tuples are by position in ``Query.requests``: ``verdicts`` of the selectors, whether the taints are
    ``tolerated``, and ``needs``, the nano-units of each capacity that the request consumes (None if the device cannot
    serve it).
    """

    __slots__ = ("needs", "tolerated", "traits", "verdicts")

    def __init__(
        self, traits: DeviceTraits, verdicts: tuple[SelectorResult, ...], terms: "_Terms"
    ) -> None:
        self.traits: Final = traits
        self.verdicts: Final = verdicts
        self.tolerated: Final = terms.tolerated
        self.needs: Final = terms.needs

    def may_serve(self, request: int) -> bool:
        """Whether the device is a candidate: selectors accept it, or there is a fault, which the search has to
        report."""
        verdict = self.verdicts[request]
        return isinstance(verdict, FAULTS) or (verdict and self.needs[request] is not None)


class _Terms(NamedTuple):
    """What a device's traits mean to each request, see DeviceProfile."""

    tolerated: tuple[bool, ...]
    needs: tuple[tuple[int, ...] | None, ...]
    amounts: tuple[tuple[CapacityAmount, ...] | None, ...]
    faults: tuple[CapacityFault | None, ...]


class Query:
    """The requests of claims that have to be allocated together. It does not depend on the claims' configuration."""

    def __init__(
        self,
        asked: Sequence[DeviceClaim],
        classes: Lister[DeviceClass],
        selectors: Selectors,
        rules: frozenset[Rule] = frozenset(),
    ) -> None:
        #: Those of app.model.features that hold.
        self.rules: Final = rules
        self._checks_amounts: Final = Rule.CapacityErrors in rules
        self.claims: Final = [ClaimQuery(n, each, classes) for n, each in enumerate(asked)]
        self.requests: Final[list[RequestQuery]] = [
            each for claim in self.claims for own in claim.requests for each in own
        ]
        names = [
            attribute_of(constraint) or ""
            for claim in self.claims
            for constraint in claim.constraints
        ]
        #: Full names of the attributes in constraints.
        self.attributes: Final = list(dict.fromkeys(names))
        #: For each claim and constraint the position in ``attributes``.
        self.attribute_of: Final = [
            [self.attributes.index(attribute_of(each) or "") for each in claim.constraints]
            for claim in self.claims
        ]
        self._selectors: Final = selectors
        self._terms: Final[dict[DeviceTraits, _Terms]] = {}
        self._profiles: Final[
            dict[tuple[DeviceTraits, tuple[SelectorResult, ...]], DeviceProfile]
        ] = {}
        #: The profiles of the first devices of a view.
        self._unfinished: Final[WeakKeyDictionary[PoolView, list[DeviceProfile]]] = (
            WeakKeyDictionary()
        )

    def profiles(self, view: PoolView, budget: Budget) -> tuple[DeviceProfile, ...]:
        """The profiles of the devices in a view, by position.

        Raises AllocationTimeout: a selector can take long for a device. The next call goes on from there.
        """
        reachable = view.reachable or (True,) * len(view.offers)
        profiles = self._unfinished.setdefault(view, [])
        for place in range(len(profiles), len(view.offers)):
            offer, each = view.offers[place], reachable[place]
            if budget.expired():
                raise AllocationTimeout
            try:
                profiles.append(self._profile(offer, view.key[0], budget, reachable=each))
            except EvaluationExpired:
                raise AllocationTimeout from None
        del self._unfinished[view]
        return tuple(profiles)

    def _profile(
        self, offer: Offer, driver: str, budget: Budget, *, reachable: bool
    ) -> DeviceProfile:
        traits = offer.traits
        verdicts: tuple[SelectorResult, ...] = tuple(
            [
                self._verdict(request, offer, driver, budget, reachable=reachable)
                for request in self.requests
            ]
        )
        if self._checks_amounts and traits.capacities.names:
            faults = self.terms(traits).faults
            verdicts = tuple(
                [
                    verdict if fault is None or verdict is not True else fault
                    for verdict, fault in zip(verdicts, faults, strict=True)
                ]
            )
        profile = self._profiles.get((traits, verdicts))
        if profile is None:
            profile = DeviceProfile(traits, verdicts, self.terms(traits))
            self._profiles[traits, verdicts] = profile
        return profile

    def values(self, view: PoolView) -> list[tuple[AttributeValue, ...]]:
        """The values of ``attributes`` of each device in a view."""
        driver, names = view.key[0], self.attributes
        return [
            tuple([look_up(offer.device, driver, name) for name in names]) for offer in view.offers
        ]

    def terms(self, traits: DeviceTraits) -> _Terms:
        """What a device's traits mean to each request."""
        terms = self._terms.get(traits)
        if terms is None:
            capacities = traits.capacities
            asked = [request.spec.capacity for request in self.requests]
            amounts = tuple(
                [capacities.taken(None if each is None else each.requests) for each in asked]
            )
            terms = self._terms[traits] = _Terms(
                tuple([_tolerates(request, traits.taints) for request in self.requests]),
                tuple(
                    [None if each is None else tuple([a.nanos for a in each]) for each in amounts]
                ),
                amounts,
                tuple([self._amount_fault(request, capacities) for request in self.requests]),
            )
        return terms

    def _amount_fault(
        self, request: RequestQuery, capacities: DeviceCapacities
    ) -> CapacityFault | None:
        """The fault of a request for a device with these capacities, if such faults are errors."""
        if not self._checks_amounts:
            return None
        asked = request.spec.capacity
        text = capacities.fault(None if asked is None else asked.requests)
        return CapacityFault(request.name, text) if text else None

    def amounts(self, request: RequestQuery, traits: DeviceTraits) -> tuple[CapacityAmount, ...]:
        """What a request consumes of the capacities of a device with these traits, which has to be able to serve it."""
        return self.terms(traits).amounts[self.requests.index(request)] or ()

    def _verdict(
        self, request: RequestQuery, offer: Offer, driver: str, budget: Budget, *, reachable: bool
    ) -> SelectorResult:
        """Evaluates the selectors of the class, then those of the request; also for devices that the node does not
        reach."""
        if request.device_class is None:
            return False
        for test in request.tests:
            try:
                if not self._selectors.matches(
                    test.expression, driver, offer.device, budget.expired
                ):
                    return False
            except DeviceSelectorError as error:
                return SelectorFault(
                    test.device_class, test.place, compiling=error.compiling, text=str(error)
                )
        return reachable


def _tolerates(request: RequestQuery, taints: Sequence[DeviceTaint]) -> bool:
    tolerations = request.spec.tolerations or ()
    return all(any(tolerates(each, taint) for each in tolerations) for taint in taints)
