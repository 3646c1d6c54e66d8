"""The search for devices on one node. It finds the first solution in kube-scheduler's order (KEP-4381).

The search backtracks over claims, requests and devices. It tries the candidates of a request in the order of pools,
slices and devices. The devices of one request are tried in ascending order only, because their order does not matter.
It tries the alternatives of a request one after the other, each with everything that follows. The number of devices
of a claim is limited. If a choice leaves too few for the requests after it, all other choices with the same number of
devices are skipped.

The frames of the search are on a stack of its own, because claims with many devices would exceed Python's recursion
limit.
"""

import enum
from collections import defaultdict
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from app.model.devices import MAX_RESULTS, ResourceClaim
from app.model.features import Rule
from app.plugins.dynamic_resources.budget import AllocationTimeout, Budget
from app.plugins.dynamic_resources.constraints import (
    AttributeConstraint,
    AttributeValue,
    SharedCounters,
    start,
)
from app.plugins.dynamic_resources.pools import PoolState, PoolView, ViewUsage
from app.plugins.dynamic_resources.query import (
    FAULTS,
    CapacityFault,
    DeviceProfile,
    Query,
    RequestQuery,
)

#: Candidates that are tried between two looks at the clock.
_PATIENCE: Final = 128

_INVALID_POOLS: Final = "invalid resource pools were encountered"
_TOO_MANY: Final = "allocation max size exceeded"


class AllocationFailed(Exception):  # noqa: N818 - it says what happened
    """Nothing can be allocated on this node. The text is the reason."""


class AllocationError(Exception):
    """Nothing can be allocated on any node, because a claim or a class is invalid. The text says why."""


class Solution(NamedTuple):
    """The devices for all claims.

    ``chosen`` has for each claim pairs of a request (position in ``Query.requests``) and a device (position on the
    node), ``picks`` for each claim and request the chosen alternative (position in ``Query.requests``).
    """

    chosen: tuple[tuple[tuple[int, int], ...], ...]
    picks: tuple[tuple[int, ...], ...]


class NodeDevices:
    """All devices that a node sees, in the order in which they are tried, with their profiles and usage."""

    __slots__ = ("first", "profiles", "usages", "values", "view_of", "views")

    def __init__(
        self,
        views: Sequence[PoolView],
        profiles: Sequence[Sequence[DeviceProfile]],
        values: Sequence[Sequence[tuple[AttributeValue, ...]]],
        usages: Sequence[ViewUsage],
    ) -> None:
        self.views: Final = views
        self.usages: Final = usages
        self.profiles: Final = [each for part in profiles for each in part]
        #: The values of the attributes in constraints, by device.
        self.values: Final = [each for part in values for each in part]
        #: The number of each device's view, and the position of each view's first device.
        self.view_of: Final[list[int]] = []
        self.first: Final[list[int]] = []
        for number, part in enumerate(profiles):
            self.first.append(len(self.view_of))
            self.view_of.extend([number] * len(part))

    def name(self, position: int) -> str:
        """Driver, pool and device, as messages show them."""
        number = self.view_of[position]
        view = self.views[number]
        return f"{view.name}/{view.offers[position - self.first[number]].device.name}"


class _Step(enum.Enum):
    """How the search continues."""

    #: The last frame tries its next choice.
    ON = 0
    #: The choice of the last frame has no solution.
    NO = 1
    #: As NO, and neither has any other choice with the same number of devices: the claim would have too many results.
    TOO_MANY = 2
    DONE = 3


class _ClaimEnd:
    """The frame between two claims. It turns TOO_MANY into NO: other devices of the first claim may leave more for
    the second."""

    __slots__ = ()


class _Choice:
    """The frame of a choice between the alternatives of a request."""

    __slots__ = ("alternative", "claim", "place", "too_many")

    def __init__(self, claim: int, place: int) -> None:
        self.claim: Final = claim
        self.place: Final = place
        self.alternative = 0
        #: Whether all alternatives so far ended with TOO_MANY.
        self.too_many = True


class _Slot:
    """The frame of one device for a request.

    ``number`` is the request's position in the query, ``index`` the number of devices that it has before this one.
    ``cursor`` is the index of the next candidate, ``position`` the device that is tried now.
    """

    __slots__ = ("cursor", "in_vain", "index", "number", "position")

    def __init__(self, number: int, index: int, cursor: int) -> None:
        self.number: Final = number
        self.index: Final = index
        self.cursor = cursor
        self.position = -1
        #: The ``_key`` of devices that were tried in vain.
        self.in_vain: Final[set[Hashable]] = set()


class DeviceSearch:
    """A single search: ``run`` is called until it does not raise AllocationTimeout."""

    def __init__(self, query: Query, claims: Sequence[ResourceClaim], node: NodeDevices) -> None:
        self._query: Final = query
        self._claims: Final = claims
        self._node: Final = node
        self._budget: Budget | None = None
        self._steps = 0
        self._numbers: Final = {request: n for n, request in enumerate(query.requests)}
        self._wanted: Final[list[int]] = []
        #: By request the positions of its candidates; for requests of all devices those of all of them.
        self._candidates: Final[list[list[int]]] = []
        #: By request whether a selector fails for any candidate.
        self._faulty: Final[list[bool]] = []
        self._taken: Final = {
            node.first[number] + place
            for number, usage in enumerate(node.usages)
            for place in usage.taken
        }
        self._consumed: Final = {
            node.first[number] + place: amounts
            for number, usage in enumerate(node.usages)
            for place, amounts in usage.consumed.items()
        }
        #: The devices of which claims have shares.
        self._shared: Final = {
            node.first[number] + place
            for number, usage in enumerate(node.usages)
            for place in usage.shared
        }
        self._exact: Final = Rule.CountersOnce in query.rules
        self._constraints: Final[list[list[AttributeConstraint]]] = []
        self._counters: Final = SharedCounters()
        #: The claims for which this search has taken a device, by the device's position.
        self._taking: Final[defaultdict[int, set[int]]] = defaultdict(set)
        #: The capacities of shared devices that this search has taken, by the device's position.
        self._taking_capacity: Final[dict[int, list[int]]] = {}
        #: How many shares of a device this search has taken, by the device's position; with ``_exact``.
        self._sharing: Final[defaultdict[int, int]] = defaultdict(int)
        self._results: Final[list[list[tuple[int, int]]]] = [[] for _ in query.claims]
        self._picks: Final = [[own[0] for own in claim.requests] for claim in query.claims]
        self._stack: Final[list[_ClaimEnd | _Choice | _Slot]] = []
        self._may_skip = False
        self._begun = False

    # ------------------------------------------------------------ preparation

    def run(self, budget: Budget) -> Solution | None:
        """The solution, or None if there is none. Raises AllocationFailed, AllocationError and AllocationTimeout.

        After AllocationTimeout it goes on from there when it is called again.
        """
        self._budget = budget
        if not self._begun:
            self._prepare()
            self._may_skip = self._leaves_no_trace()
        if self._query.claims and not self._search():
            if any(view.state is PoolState.INVALID for view in self._node.views):
                raise AllocationFailed(_INVALID_POOLS)
            return None
        return Solution(
            tuple(map(tuple, self._results)),
            tuple([tuple([self._numbers[each] for each in own]) for own in self._picks]),
        )

    def _look_at_clock(self) -> None:
        self._steps = 0
        if self._budget is not None and self._budget.expired():
            raise AllocationTimeout

    def _prepare(self) -> None:
        for number, claim in enumerate(self._query.claims):
            least = 0
            for own in claim.requests:
                wanted = [self._prepare_request(request) for request in own]
                self._wanted.extend(wanted)
                adding = min(wanted)
                if least + adding > MAX_RESULTS and Rule.NamedRequests in self._query.rules:
                    name, _, _ = own[0].full_name.partition("/")
                    raise AllocationError(
                        f"claim {self._claims[number].key}, request {name}: adding {adding} devices "
                        f"exceeds the claim limit of {MAX_RESULTS}, with {least} already accounted for"
                    )
                least += adding
            if least > MAX_RESULTS:
                raise AllocationError(
                    f"claim {self._claims[number].key}: number of requested devices {least} "
                    f"exceeds the claim limit of {MAX_RESULTS}"
                )
            if claim.constraint_error is not None:
                raise AllocationError(f"claim {self._claims[number].key}{claim.constraint_error}")
            each_distinct = Rule.EachDistinct in self._query.rules
            self._constraints.append(
                [start(each, each_distinct=each_distinct) for each in claim.constraints]
            )

    def _prepare_request(self, request: RequestQuery) -> int:
        """Finds the candidates of a request. Returns the number of devices that it needs."""
        if request.error is not None:
            raise AllocationError(self._about(request, request.error))
        number = self._numbers[request]
        node = self._node
        if not request.every:
            candidates = [
                position
                for position, profile in enumerate(node.profiles)
                if (request.admin_access or position not in self._taken)
                and profile.may_serve(number)
            ]
            self._candidates.append(candidates)
            self._faulty.append(
                any(isinstance(node.profiles[each].verdicts[number], FAULTS) for each in candidates)
            )
            return request.count
        fits = self._could_fit if Rule.EveryDevice in self._query.rules else self._fits
        everything: list[int] = []
        for view, first in zip(node.views, node.first, strict=True):
            if view.state is not PoolState.USABLE:
                updated = view.state is PoolState.INCOMPLETE
                state = "being updated" if updated else "invalid"
                here = Rule.UnsettledPools in self._query.rules
                raise (AllocationFailed if here else AllocationError)(
                    self._about(
                        request,
                        f": asks for all devices, but resource pool {view.name} is currently {state}",
                    )
                )
            everything += [
                position
                for position in range(first, first + len(view.offers))
                if self._selectable(request, number, position) and fits(number, position)
            ]
        self._candidates.append(everything)
        self._faulty.append(False)
        return len(everything)

    def _leaves_no_trace(self) -> bool:
        """Whether trying a device in vain changes nothing, so that a device with the same key does not have to be
        tried.

        As in kube-scheduler 1.36, not everything is given back: see ``_take``, ``_give_back`` and DistinctAttribute.
        """
        for number, request in enumerate(self._query.requests):
            kinds = self._query.claims[request.claim].constraints
            distinct = any(kinds[place].match_attribute is None for place in request.constraints)
            if distinct and self._wanted[number] > 1:
                return False
        if self._exact:
            return True
        return not any(map(self._may_leave_trace, set(self._node.profiles)))

    def _may_leave_trace(self, profile: DeviceProfile) -> bool:
        requests = self._query.requests
        if profile.traits.consumes:
            return profile.traits.shared or any(
                request.constraints or not profile.tolerated[number]
                for number, request in enumerate(requests)
                if profile.may_serve(number)
            )
        return profile.traits.shared and any(each.every and each.constraints for each in requests)

    def _about(self, request: RequestQuery, text: str) -> str:
        return f"claim {self._claims[request.claim].key}, request {request.name}{text}"

    def _selectable(self, request: RequestQuery, number: int, position: int) -> bool:
        verdict = self._node.profiles[position].verdicts[number]
        if isinstance(verdict, FAULTS):
            device = self._node.name(position)
            if isinstance(verdict, CapacityFault):
                device = device.rpartition("/")[2] if request.every else device
            elif Rule.NamedDevices not in self._query.rules:
                device = ""
            raise AllocationError(verdict.message(self._claims[request.claim].key, device))
        return verdict

    def _could_fit(self, number: int, position: int) -> bool:
        """Whether the device's capacities would be enough if nothing of them were in use."""
        profile = self._node.profiles[position]
        needs = profile.needs[number]
        limits = profile.traits.capacities.limits
        return needs is not None and all(
            amount <= limit for amount, limit in zip(needs, limits, strict=True)
        )

    def _fits(self, number: int, position: int) -> bool:
        """Whether enough of the device's capacities is left."""
        profile = self._node.profiles[position]
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
        """Whether there is a solution, which is then in ``_results`` and ``_picks``."""
        stack = self._stack
        step = _Step.ON if self._begun else self._enter(0, 0)
        self._begun = True
        while step is not _Step.DONE:
            if not stack:
                if step is _Step.TOO_MANY:
                    raise AllocationError(_TOO_MANY)
                return False
            frame = stack[-1]
            step = self._try_next(frame) if step is _Step.ON else self._give_up(frame, step)
        return True

    def _enter(self, claim: int, place: int) -> _Step:
        """Continues with a request, or with the next claim after the last request."""
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
        """Continues with a device for a request, or with the next request if this one has all its devices."""
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
        """Whether enough candidates are left. If a selector fails for one, the search must find it in any case."""
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
            frame.in_vain.add(self._key(frame.position))
        return _Step.ON

    def _is_touched(self, position: int) -> bool:
        """Whether this search has taken the device or a share of it."""
        return bool(self._taking.get(position)) or position in self._taking_capacity

    def _key(self, position: int) -> Hashable:
        """Equal for devices between which the search makes no difference, if it has not touched them."""
        node = self._node
        profile = node.profiles[position]
        account = self._account(position) if profile.traits.consumes else ""
        in_use = position in self._taken, position in self._shared, self._consumed.get(position)
        return profile, node.values[position], account, in_use

    def _is_in_vain(self, slot: _Slot, position: int) -> bool:
        if not slot.in_vain or self._is_touched(position):
            return False
        return self._key(position) in slot.in_vain

    def _try_only(self, slot: _Slot) -> bool:
        """Takes the next device for a request of all devices. If it is not available, the request fails."""
        position = self._candidates[slot.number][slot.index]
        slot.position = position
        return self._take(self._query.requests[slot.number], slot.number, position, must=True)

    def _try_candidates(self, slot: _Slot) -> bool:
        """Takes the next candidate that is available."""
        candidates, number = self._candidates[slot.number], slot.number
        request = self._query.requests[number]
        while slot.cursor < len(candidates):
            self._steps += 1
            if self._steps >= _PATIENCE:
                self._look_at_clock()
            position = candidates[slot.cursor]
            slot.cursor += 1
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

    def _take(self, request: RequestQuery, number: int, position: int, *, must: bool) -> bool:
        """Takes a device for a request, if it is available.

        As in kube-scheduler 1.36, counters that were consumed are not given back if a later check fails, and values
        that were added to constraints are not removed if the capacity does not suffice. With ``_exact`` both are.
        """
        profile = self._node.profiles[position]
        shared, taking = profile.traits.shared, self._taking.get(position, ())
        if request.admin_access:
            if request.claim in taking:
                return False
        elif position in self._taken or taking:
            return False
        if not self._consume(profile, position):
            return False
        if not profile.tolerated[number] or not self._constrain(request, position, must=must):
            if self._exact:
                self._release(profile, position)
            return False
        if not shared:
            self._taking[position].add(request.claim)
        if not self._fits(number, position):
            if self._exact:
                self._taking[position].discard(request.claim)
                self._unconstrain(request)
                self._release(profile, position)
            return False
        if shared:
            self._sharing[position] += 1
            needs = profile.needs[number] or ()
            known = self._taking_capacity.get(position)
            if known is None:
                self._taking_capacity[position] = list(needs)
            else:
                known[:] = map(sum, zip(known, needs, strict=True))
        self._results[request.claim].append((number, position))
        return True

    def _consume(self, profile: DeviceProfile, position: int) -> bool:
        """Consumes the device's counters. Further shares of a device that is in use consume nothing."""
        consumes = profile.traits.consumes
        if not consumes or (profile.traits.shared and self._is_shared(position)):
            return True
        left = self._node.usages[self._node.view_of[position]].left
        return self._counters.consume(self._account(position), consumes, left)

    def _is_shared(self, position: int) -> bool:
        """Whether a share of the device is in use; up to 1.36 only if it has a capacity."""
        if self._exact:
            return position in self._shared or self._sharing.get(position, 0) > 0
        return position in self._consumed or position in self._taking_capacity

    def _account(self, position: int) -> Hashable:
        """The account of a device's counters: that of its driver's pool, or up to 1.36 of all pools of this name."""
        key = self._node.views[self._node.view_of[position]].key
        return key if self._exact else key[1]

    def _release(self, profile: DeviceProfile, position: int) -> None:
        """Gives back the counters of a device, unless a share of it is still in use."""
        if profile.traits.consumes and not (profile.traits.shared and self._is_shared(position)):
            self._counters.release(self._account(position), profile.traits.consumes)

    def _constrain(self, request: RequestQuery, position: int, *, must: bool) -> bool:
        constraints = self._constraints[request.claim]
        attributes = self._query.attribute_of[request.claim]
        values = self._node.values[position]
        for count, place in enumerate(request.constraints):
            if not constraints[place].add(request.place, values[attributes[place]]):
                if must:
                    device = self._node.name(position)
                    text = f": cannot add device {device} because a claim constraint would not be satisfied"
                    raise AllocationError(self._about(request, text))
                for earlier in request.constraints[:count]:
                    constraints[earlier].remove(request.place)
                return False
        return True

    def _unconstrain(self, request: RequestQuery) -> None:
        for place in request.constraints:
            self._constraints[request.claim][place].remove(request.place)

    def _give_back(self, request: RequestQuery, number: int, position: int) -> None:
        """Undoes ``_take``, up to 1.36 except for the counters of shared devices."""
        profile = self._node.profiles[position]
        self._unconstrain(request)
        self._taking[position].discard(request.claim)
        self._results[request.claim].pop()
        if not profile.traits.shared:
            self._release(profile, position)
            return
        self._sharing[position] -= 1
        if self._exact:
            self._release(profile, position)
        needs, known = profile.needs[number], self._taking_capacity[position]
        if needs:
            known[:] = [total - amount for total, amount in zip(known, needs, strict=True)]
        in_use = self._sharing[position] > 0 if self._exact else not needs or any(known)
        if not in_use:
            del self._taking_capacity[position]
