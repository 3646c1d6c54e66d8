"""The search for devices on one node: the first full solution in kube-scheduler's order (KEP-4381).

Claim by claim, request by request, device by device: every device that will do is tried in the order of pools, slices and devices,
those of one request in ascending order only, since their order does not matter. Alternatives of a request are tried one after
the other, each together with everything that comes later. A claim's results are limited; a choice that makes this impossible for
the requests behind it is given up together with all others of the same number of devices.

The frames of the search are objects on a stack of its own: claims with many devices would be too deep for Python's.
"""

import enum
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from app.model.devices import MAX_RESULTS, ResourceClaim
from app.plugins.dynamic_resources.constraints import Constraint, Value, start
from app.plugins.dynamic_resources.counters import Counters
from app.plugins.dynamic_resources.deadline import AllocationTimeout, Budget
from app.plugins.dynamic_resources.pools import PoolState, PoolView, Usage
from app.plugins.dynamic_resources.query import Fault, Profile, Query, Request

#: How many candidates are looked at between two looks at the clock.
_PATIENCE: Final = 128

_INVALID_POOLS: Final = "invalid resource pools were encountered"
_TOO_MANY: Final = "allocation max size exceeded"


class AllocationFailed(Exception):  # noqa: N818 - it says what happened
    """Nothing can be allocated on this node, for a reason that is worth telling."""


class AllocationError(Exception):
    """Nothing can be allocated on any node: a claim or a class is wrong."""


class Solution(NamedTuple):
    """``chosen``: for each claim its requests, by position in ``Query.requests``, each with a device by position on the node;
    ``picks``: for each claim the position in ``Query.requests`` of the alternative for each of its requests."""

    chosen: tuple[tuple[tuple[int, int], ...], ...]
    picks: tuple[tuple[int, ...], ...]


class Scene:
    """What is searched: the devices that a node sees, one after the other, with what they are to the claims, and what is in use."""

    __slots__ = ("first", "profiles", "usages", "values", "view_of", "views")

    def __init__(
        self,
        views: Sequence[PoolView],
        profiles: Sequence[Sequence[Profile]],
        values: Sequence[Sequence[tuple[Value, ...]]],
        usages: Sequence[Usage],
    ) -> None:
        self.views: Final = views
        self.usages: Final = usages
        self.profiles: Final = [each for part in profiles for each in part]
        #: Of the attributes in constraints.
        self.values: Final = [each for part in values for each in part]
        #: Which view each device is in, and the position of the first device of each view.
        self.view_of: Final[list[int]] = []
        self.first: Final[list[int]] = []
        for number, part in enumerate(profiles):
            self.first.append(len(self.view_of))
            self.view_of.extend([number] * len(part))

    def name(self, position: int) -> str:
        """Driver, pool and device, as in messages."""
        number = self.view_of[position]
        view = self.views[number]
        return f"{view.name}/{view.offers[position - self.first[number]].device.name}"


class _Step(enum.Enum):
    """How the search goes on."""

    #: The last frame tries what it has not tried yet.
    ON = 0
    #: The last frame is told that what it tried leads to nothing.
    NO = 1
    #: The same: whatever it tries with as many devices, there is no way to stay below the limit of a claim's results.
    TOO_MANY = 2
    DONE = 3


class _ClaimEnd:
    """Between two claims. What is too many for the later one may not be once the former has other devices."""

    __slots__ = ()


class _Choice:
    """Of alternatives for a request."""

    __slots__ = ("alternative", "claim", "place", "too_many")

    def __init__(self, claim: int, place: int) -> None:
        self.claim: Final = claim
        self.place: Final = place
        self.alternative = 0
        #: Whether all alternatives so far were too many.
        self.too_many = True


class _Slot:
    """One device for a request. ``number``: of the request in the query; ``index``: how many devices it has before this one;
    ``cursor``: of the next to try, among the request's candidates; ``position``: of the device that is tried now."""

    __slots__ = ("cursor", "in_vain", "index", "number", "position")

    def __init__(self, number: int, index: int, cursor: int) -> None:
        self.number: Final = number
        self.index: Final = index
        self.cursor = cursor
        self.position = -1
        #: What devices were like that have been tried in vain.
        self.in_vain: Final[set[Hashable]] = set()


class Search:
    """One search; ``run`` once."""

    def __init__(
        self, query: Query, claims: Sequence[ResourceClaim], scene: Scene, budget: Budget
    ) -> None:
        self._query: Final = query
        self._claims: Final = claims
        self._scene: Final = scene
        self._budget: Final = budget
        self._steps = 0
        self._numbers: Final = {request: n for n, request in enumerate(query.requests)}
        self._wanted: Final[list[int]] = []
        #: Positions of the devices for requests that want all, of those that may do for others.
        self._candidates: Final[list[list[int]]] = []
        #: Whether a selector fails on any candidate.
        self._faulty: Final[list[bool]] = []
        self._taken: Final = {
            scene.first[number] + place
            for number, usage in enumerate(scene.usages)
            for place in usage.taken
        }
        self._consumed: Final = {
            scene.first[number] + place: amounts
            for number, usage in enumerate(scene.usages)
            for place, amounts in usage.consumed.items()
        }
        self._constraints: Final[list[list[Constraint]]] = []
        self._counters: Final = Counters()
        #: For which claims a device is taken in this search.
        self._taking: Final[defaultdict[int, set[int]]] = defaultdict(set)
        #: How much of the capacity of shared devices is taken in this search.
        self._taking_capacity: Final[dict[int, list[int]]] = {}
        self._results: Final[list[list[tuple[int, int]]]] = [[] for _ in query.claims]
        self._picks: Final = [[own[0] for own in claim.requests] for claim in query.claims]
        self._stack: Final[list[_ClaimEnd | _Choice | _Slot]] = []
        self._may_skip = False

    # ------------------------------------------------------------ before the search

    def run(self) -> Solution | None:
        """The solution; None if there is none. Raises AllocationFailed, AllocationError, AllocationTimeout."""
        self._prepare()
        self._may_skip = self._leaves_no_trace()
        if self._query.claims and not self._search():
            if any(view.state is PoolState.INVALID for view in self._scene.views):
                raise AllocationFailed(_INVALID_POOLS)
            return None
        return Solution(
            tuple(map(tuple, self._results)),
            tuple([tuple([self._numbers[each] for each in own]) for own in self._picks]),
        )

    def _look_at_clock(self) -> None:
        self._steps = 0
        if self._budget.expired():
            raise AllocationTimeout

    def _prepare(self) -> None:
        for number, claim in enumerate(self._query.claims):
            least = 0
            for own in claim.requests:
                wanted = [self._prepare_request(request) for request in own]
                self._wanted.extend(wanted)
                least += min(wanted)
            if least > MAX_RESULTS:
                raise AllocationError(
                    f"claim {self._claims[number].key}: number of requested devices {least} "
                    f"exceeds the claim limit of {MAX_RESULTS}"
                )
            if claim.constraint_error is not None:
                raise AllocationError(f"claim {self._claims[number].key}{claim.constraint_error}")
            self._constraints.append([start(each) for each in claim.constraints])

    def _prepare_request(self, request: Request) -> int:
        """Finds the request's candidates; how many devices it wants."""
        if request.error is not None:
            raise AllocationError(self._about(request, request.error))
        number = self._numbers[request]
        scene = self._scene
        if not request.every:
            candidates = [
                position
                for position, profile in enumerate(scene.profiles)
                if (request.admin_access or position not in self._taken)
                and profile.may_serve(number)
            ]
            self._candidates.append(candidates)
            self._faulty.append(
                any(isinstance(scene.profiles[each].verdicts[number], Fault) for each in candidates)
            )
            return request.count
        everything: list[int] = []
        for view, first in zip(scene.views, scene.first, strict=True):
            if view.state is not PoolState.USABLE:
                updated = view.state is PoolState.INCOMPLETE
                state = "being updated" if updated else "invalid"
                raise AllocationError(
                    self._about(
                        request,
                        f": asks for all devices, but resource pool {view.name} is currently {state}",
                    )
                )
            everything += [
                position
                for position in range(first, first + len(view.offers))
                if self._selectable(request, number, position) and self._fits(number, position)
            ]
        self._candidates.append(everything)
        self._faulty.append(False)
        return len(everything)

    def _leaves_no_trace(self) -> bool:
        """Whether a device that is tried in vain leaves everything as it was, so that trying one just like it is in vain, too.

        Not everything is given back, in kube-scheduler as here: see ``_take``, ``_give_back`` and DistinctAttribute.
        """
        for number, request in enumerate(self._query.requests):
            kinds = self._query.claims[request.claim].constraints
            distinct = any(kinds[place].match_attribute is None for place in request.constraints)
            if distinct and self._wanted[number] > 1:
                return False
        return not any(map(self._may_leave_trace, set(self._scene.profiles)))

    def _may_leave_trace(self, profile: Profile) -> bool:
        requests = self._query.requests
        if profile.traits.consumes:
            return profile.traits.shared or any(
                request.constraints or not profile.tolerated[number]
                for number, request in enumerate(requests)
                if profile.may_serve(number)
            )
        return profile.traits.shared and any(each.every and each.constraints for each in requests)

    def _about(self, request: Request, text: str) -> str:
        return f"claim {self._claims[request.claim].key}, request {request.name}{text}"

    def _selectable(self, request: Request, number: int, position: int) -> bool:
        verdict = self._scene.profiles[position].verdicts[number]
        if isinstance(verdict, Fault):
            owner = f"class {verdict.device_class}"
            if not verdict.device_class:
                owner = f"claim {self._claims[request.claim].key}"
            raise AllocationError(f"{owner}: {verdict.text}")
        return verdict

    def _fits(self, number: int, position: int) -> bool:
        """Whether enough is left of the device's capacities."""
        profile = self._scene.profiles[position]
        needs = profile.needs[number]
        if needs is None:
            return False
        consumed, taking = self._consumed.get(position), self._taking_capacity.get(position)
        for place, limit in enumerate(profile.traits.capacities.limits):
            amount = needs[place]
            if consumed:
                amount += consumed[place]
            if taking:
                amount += taking[place]
            if amount > limit:
                return False
        return True

    # ------------------------------------------------------------ the search

    def _search(self) -> bool:
        """Whether there is a solution; it is in the results then."""
        stack = self._stack
        step = self._enter(0, 0)
        while step is not _Step.DONE:
            if not stack:
                if step is _Step.TOO_MANY:
                    raise AllocationError(_TOO_MANY)
                return False
            frame = stack[-1]
            step = self._try_next(frame) if step is _Step.ON else self._give_up(frame, step)
        return True

    def _enter(self, claim: int, place: int) -> _Step:
        """Goes on with a request, or with the next claim behind the last of them."""
        while place >= len(self._query.claims[claim].requests):
            claim, place = claim + 1, 0
            if claim == len(self._query.claims):
                return _Step.DONE
            self._stack.append(_ClaimEnd())
        own = self._query.claims[claim].requests[place]
        if own[0].alternative is None:
            return self._enter_slot(self._numbers[own[0]], 0, 0)
        self._stack.append(_Choice(claim, place))
        return _Step.ON

    def _enter_slot(self, number: int, index: int, cursor: int) -> _Step:
        """Goes on with a device for a request, or with the next request when it has all it wants."""
        request, wanted = self._query.requests[number], self._wanted[number]
        if request.every and not wanted:
            return _Step.NO
        if index >= wanted:
            return self._enter(request.claim, request.place + 1)
        if len(self._results[request.claim]) + wanted - index > MAX_RESULTS:
            return _Step.TOO_MANY
        if (
            self._may_skip
            and not request.every
            and not self._enough(number, wanted - index, cursor)
        ):
            return _Step.NO
        self._stack.append(_Slot(number, index, cursor))
        return _Step.ON

    def _enough(self, number: int, wanted: int, cursor: int) -> bool:
        """Whether there are as many candidates left as are wanted; selectors that fail must be met nevertheless."""
        return len(self._candidates[number]) - cursor >= wanted or self._faulty[number]

    def _try_next(self, frame: _ClaimEnd | _Choice | _Slot) -> _Step:
        if isinstance(frame, _Slot):
            every = self._query.requests[frame.number].every
            found = self._try_only(frame) if every else self._try_candidates(frame)
            if found:
                return self._enter_slot(frame.number, frame.index + 1, frame.cursor)
        elif isinstance(frame, _Choice):
            own = self._query.claims[frame.claim].requests[frame.place]
            if frame.alternative < len(own):
                request = self._picks[frame.claim][frame.place] = own[frame.alternative]
                return self._enter_slot(self._numbers[request], 0, 0)
            self._stack.pop()
            return _Step.TOO_MANY if frame.too_many else _Step.NO
        self._stack.pop()
        return _Step.NO

    def _give_up(self, frame: _ClaimEnd | _Choice | _Slot, step: _Step) -> _Step:
        if isinstance(frame, _Choice):
            frame.alternative += 1
            frame.too_many = frame.too_many and step is _Step.TOO_MANY
            return _Step.ON
        if isinstance(frame, _ClaimEnd):
            self._stack.pop()
            return _Step.NO
        request = self._query.requests[frame.number]
        self._give_back(request, frame.number, frame.position)
        if step is _Step.TOO_MANY or request.every:
            self._stack.pop()
            return step
        if self._may_skip and not self._is_touched(frame.position):
            frame.in_vain.add(self._like(frame.position))
        return _Step.ON

    def _is_touched(self, position: int) -> bool:
        """Whether this search has taken the device, or a share of it."""
        return bool(self._taking.get(position)) or position in self._taking_capacity

    def _like(self, position: int) -> Hashable:
        """The same for devices that can stand for each other, if they are untouched."""
        scene = self._scene
        profile = scene.profiles[position]
        account = scene.views[scene.view_of[position]].key[1] if profile.traits.consumes else ""
        in_use = position in self._taken, self._consumed.get(position)
        return profile, scene.values[position], account, in_use

    def _is_in_vain(self, slot: _Slot, position: int) -> bool:
        if not slot.in_vain or self._is_touched(position):
            return False
        return self._like(position) in slot.in_vain

    def _try_only(self, slot: _Slot) -> bool:
        """Takes the device whose turn it is among all devices: if that one cannot be had, not all can."""
        position = self._candidates[slot.number][slot.index]
        slot.position = position
        return self._take(self._query.requests[slot.number], slot.number, position, must=True)

    def _try_candidates(self, slot: _Slot) -> bool:
        """Takes the next candidate that can be had."""
        candidates, number = self._candidates[slot.number], slot.number
        request = self._query.requests[number]
        while slot.cursor < len(candidates):
            position = candidates[slot.cursor]
            slot.cursor += 1
            self._steps += 1
            if self._steps >= _PATIENCE:
                self._look_at_clock()
            taking = self._taking.get(position)
            if taking and (not request.admin_access or request.claim in taking):
                continue
            if self._is_in_vain(slot, position):
                continue
            if (
                self._selectable(request, number, position)
                and self._fits(number, position)
                and self._take(request, number, position, must=False)
            ):
                slot.position = position
                return True
        return False

    # ------------------------------------------------------------ devices

    def _take(self, request: Request, number: int, position: int, *, must: bool) -> bool:
        """Takes a device for a request, if nothing is against it.

        What a device that cannot be had after all has taken of counters is lost to this search, and so is what it meant to
        constraints if its capacity does not suffice: kube-scheduler does not give it back either.
        """
        profile = self._scene.profiles[position]
        shared, taking = profile.traits.shared, self._taking.get(position, ())
        if request.admin_access:
            if request.claim in taking:
                return False
        elif position in self._taken or taking:
            return False
        if not self._consume(profile, position) or not profile.tolerated[number]:
            return False
        if not self._constrain(request, position, must=must):
            return False
        if not shared:
            self._taking[position].add(request.claim)
        if not self._fits(number, position):
            return False
        if shared:
            needs = profile.needs[number] or ()
            known = self._taking_capacity.get(position)
            if known is None:
                self._taking_capacity[position] = list(needs)
            else:
                known[:] = map(sum, zip(known, needs, strict=True))
        self._results[request.claim].append((number, position))
        return True

    def _consume(self, profile: Profile, position: int) -> bool:
        """Takes of the counters what the device consumes; another share of a device that is in use takes nothing more."""
        consumes = profile.traits.consumes
        in_use = position in self._consumed or position in self._taking_capacity
        if not consumes or (profile.traits.shared and in_use):
            return True
        view = self._scene.view_of[position]
        left = self._scene.usages[view].left
        return self._counters.consume(self._scene.views[view].key[1], consumes, left)

    def _constrain(self, request: Request, position: int, *, must: bool) -> bool:
        constraints = self._constraints[request.claim]
        attributes = self._query.attribute_of[request.claim]
        values = self._scene.values[position]
        for count, place in enumerate(request.constraints):
            if not constraints[place].add(request.place, values[attributes[place]]):
                if must:
                    device = self._scene.name(position)
                    text = f": cannot add device {device} because a claim constraint would not be satisfied"
                    raise AllocationError(self._about(request, text))
                for earlier in request.constraints[:count]:
                    constraints[earlier].remove(request.place)
                return False
        return True

    def _give_back(self, request: Request, number: int, position: int) -> None:
        """Undoes ``_take``, but for counters of shared devices."""
        profile = self._scene.profiles[position]
        for place in request.constraints:
            self._constraints[request.claim][place].remove(request.place)
        self._taking[position].discard(request.claim)
        self._results[request.claim].pop()
        if not profile.traits.shared:
            if profile.traits.consumes:
                view = self._scene.views[self._scene.view_of[position]]
                self._counters.release(view.key[1], profile.traits.consumes)
            return
        needs, known = profile.needs[number], self._taking_capacity[position]
        if needs:
            known[:] = [total - amount for total, amount in zip(known, needs, strict=True)]
            if not any(known):
                del self._taking_capacity[position]
