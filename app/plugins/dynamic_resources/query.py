"""Claims as questions: what each request wants of a device, and what a device looks like to these claims (KEP-4381).

Of a device only that counts which the claims' selectors, tolerations, capacities and constraints make of it: devices that are
alike in this have the same ``Profile``, and nodes whose devices have the same profiles one after the other get the same answer.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from app.cel.devices import SelectorError, Selectors
from app.model.devices import (
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSubRequest,
    DeviceTaint,
    DeviceToleration,
    ExactDeviceRequest,
)
from app.plugins.dynamic_resources.capacity import Amount
from app.plugins.dynamic_resources.constraints import Value, attribute_of, look_up
from app.plugins.dynamic_resources.deadline import AllocationTimeout, Budget
from app.plugins.dynamic_resources.pools import Offer, PoolView, Traits
from app.state.lister import Lister


class Fault(NamedTuple):
    """A selector that failed on a device. ``device_class``: the class that it is of; "" for one of the claim."""

    device_class: str
    text: str


#: Whether selectors accept a device, or which failed.
Verdict = bool | Fault


class _Test(NamedTuple):
    """A selector, with its place among those of the class (the claim's request, if that is "")."""

    device_class: str
    place: int
    expression: str


class Request:
    """One that has no alternatives, or one alternative.

    ``claim``, ``place``: of the claim among the claims and of the request in the claim. ``alternative``: its place among them, None
    if there are none. ``tests``: the selectors of its class and its own. ``error``: what is wrong with it in messages, behind
    "claim <claim>, request <request>".
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
        #: The names by which constraints and configurations may mean it.
        self.names: Final = frozenset({request.name, self.full_name})
        self.device_class: Final = classes.get(self.spec.device_class_name)
        #: Whether it wants all devices.
        self.every: Final = self.spec.allocation_mode == "All"
        self.count: Final = self.spec.count
        self.error: Final = self._find_error()
        #: Places of the constraints that hold for it.
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
    """One claim: ``requests`` has a list of alternatives per request, with one entry for requests without."""

    __slots__ = ("constraint_error", "constraints", "requests")

    def __init__(self, number: int, devices: DeviceClaim, classes: Lister[DeviceClass]) -> None:
        self.constraints: Final[tuple[DeviceConstraint, ...]] = devices.constraints or ()
        self.requests: Final[list[list[Request]]] = []
        for place, request in enumerate(devices.requests or ()):
            count = len(request.first_available or ())
            alternatives: list[int | None] = [*range(count)] if count else [None]
            own = [Request(number, place, request, each, classes) for each in alternatives]
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


class Profile:
    """What a device is to the claims, but for its attributes in constraints. Devices that are alike share one object.

    Tuples go by the position of the request in ``Query.requests``. ``verdicts``: whether selectors accept it; ``tolerated``: whether
    its taints are; ``needs``: nano-units of each capacity that the request takes, None if the device cannot serve it.
    """

    __slots__ = ("needs", "tolerated", "traits", "verdicts")

    def __init__(self, traits: Traits, verdicts: tuple[Verdict, ...], terms: "_Terms") -> None:
        self.traits: Final = traits
        self.verdicts: Final = verdicts
        self.tolerated: Final = terms.tolerated
        self.needs: Final = terms.needs

    def may_serve(self, request: int) -> bool:
        """Whether it is worth a look: selectors accept it, or one fails on it, which must come to light."""
        verdict = self.verdicts[request]
        return isinstance(verdict, Fault) or (verdict and self.needs[request] is not None)


class _Terms(NamedTuple):
    """What a device's traits mean to each request."""

    tolerated: tuple[bool, ...]
    needs: tuple[tuple[int, ...] | None, ...]
    amounts: tuple[tuple[Amount, ...] | None, ...]


class Query:
    """Several claims that are to be allocated together, by what they ask for: their configuration makes no difference."""

    def __init__(
        self,
        asked: Sequence[DeviceClaim],
        classes: Lister[DeviceClass],
        selectors: Selectors,
    ) -> None:
        self.claims: Final = [ClaimQuery(n, each, classes) for n, each in enumerate(asked)]
        self.requests: Final[list[Request]] = [
            each for claim in self.claims for own in claim.requests for each in own
        ]
        names = [
            attribute_of(constraint) or ""
            for claim in self.claims
            for constraint in claim.constraints
        ]
        #: Full names of the attributes in constraints.
        self.attributes: Final = list(dict.fromkeys(names))
        #: For each claim the positions in ``attributes`` by place of the constraint.
        self.attribute_of: Final = [
            [self.attributes.index(attribute_of(each) or "") for each in claim.constraints]
            for claim in self.claims
        ]
        self._selectors: Final = selectors
        self._terms: Final[dict[Traits, _Terms]] = {}
        self._profiles: Final[dict[tuple[Traits, tuple[Verdict, ...]], Profile]] = {}

    def profiles(self, view: PoolView, budget: Budget) -> tuple[Profile, ...]:
        """What the devices in a view are, by position. Raises AllocationTimeout: a selector can take long on every device."""
        reachable = view.reachable or (True,) * len(view.offers)
        profiles = []
        for offer, each in zip(view.offers, reachable, strict=True):
            if budget.expired():
                raise AllocationTimeout
            profiles.append(self._profile(offer, view.key[0], reachable=each))
        return tuple(profiles)

    def _profile(self, offer: Offer, driver: str, *, reachable: bool) -> Profile:
        traits = offer.traits
        verdicts = tuple(
            [
                self._verdict(request, offer, driver, reachable=reachable)
                for request in self.requests
            ]
        )
        profile = self._profiles.get((traits, verdicts))
        if profile is None:
            profile = Profile(traits, verdicts, self.terms(traits))
            self._profiles[traits, verdicts] = profile
        return profile

    def values(self, view: PoolView) -> list[tuple[Value, ...]]:
        """Of each device in a view the ``attributes``."""
        driver, names = view.key[0], self.attributes
        return [
            tuple([look_up(offer.device, driver, name) for name in names]) for offer in view.offers
        ]

    def terms(self, traits: Traits) -> _Terms:
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
            )
        return terms

    def amounts(self, request: Request, traits: Traits) -> tuple[Amount, ...]:
        """What a request takes of the capacities of a device with these traits, which can serve it."""
        return self.terms(traits).amounts[self.requests.index(request)] or ()

    def _verdict(self, request: Request, offer: Offer, driver: str, *, reachable: bool) -> Verdict:
        """The class is asked first. A selector that fails does so on devices that are out of reach, too."""
        if request.device_class is None:
            return False
        for test in request.tests:
            try:
                if not self._selectors.matches(test.expression, driver, offer.device):
                    return False
            except SelectorError as error:
                kind = "compile" if error.compiling else "runtime"
                return Fault(
                    test.device_class, f"selector #{test.place}: CEL {kind} error: {error}"
                )
        return reachable


def _tolerates(request: Request, taints: Sequence[DeviceTaint]) -> bool:
    tolerations = request.spec.tolerations or ()
    return all(any(_covers(each, taint) for each in tolerations) for taint in taints)


def _covers(toleration: DeviceToleration, taint: DeviceTaint) -> bool:
    """No effect means any, no key means any; no operator means Equal."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator in {"", "Equal"}:
        return toleration.value == taint.value
    return toleration.operator == "Exists"
