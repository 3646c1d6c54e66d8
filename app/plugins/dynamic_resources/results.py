"""AllocationResults, as they are written to claims: the devices, their configuration, and the nodes that reach them
(KEP-4381)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from app.model.devices import (
    AllocatedConfiguration,
    AllocationResult,
    DeviceConfiguration,
    DeviceResult,
    DeviceResults,
    ResourceClaim,
)
from app.model.features import Rule
from app.model.objects import NodeSelector, NodeSelectorTerm, Quantity
from app.model.selectors import Requirement
from app.plugins.dynamic_resources.pools import Offer, PoolView
from app.plugins.dynamic_resources.query import Query, RequestQuery
from app.plugins.dynamic_resources.search import Solution
from app.plugins.helpers.node_selector import NAME_FIELD

_FROM_CLASS: Final = "FromClass"
_FROM_CLAIM: Final = "FromClaim"


class ChosenDevice(NamedTuple):
    """A device that was found for a request."""

    request: RequestQuery
    view: PoolView
    offer: Offer


def allocation_results(
    query: Query,
    claims: Sequence[ResourceClaim],
    solution: Solution,
    views: Sequence[PoolView],
    node_name: str,
    share_id: Callable[[], str],
) -> tuple[AllocationResult, ...]:
    """The allocation of each claim that a solution means on a node. ``views`` must be those for which it was found."""
    offers = [(view, offer) for view in views for offer in view.offers]
    return tuple(
        _result(
            query,
            claim.spec.devices.config or (),
            [query.requests[number] for number in picks],
            [
                ChosenDevice(query.requests[number], *offers[position])
                for number, position in chosen
            ],
            node_name,
            share_id,
        )
        for claim, picks, chosen in zip(claims, solution.picks, solution.chosen, strict=True)
    )


def _result(
    query: Query,
    own_config: Iterable[DeviceConfiguration],
    picks: Sequence[RequestQuery],
    chosen: Sequence[ChosenDevice],
    node_name: str,
    share_id: Callable[[], str],
) -> AllocationResult:
    results = tuple([_device(query, found, share_id) for found in chosen])
    once = Rule.ConfigOnce in query.rules
    config = (*_class_config(picks), *_claim_config(own_config, picks, once=once))
    if once:
        config = tuple([_without_names(each, picks) for each in config])
    return AllocationResult(
        DeviceResults(results or None, config or None), _node_selector(chosen, node_name)
    )


def _device(query: Query, found: ChosenDevice, share_id: Callable[[], str]) -> DeviceResult:
    request, (driver, pool), device = found.request, found.view.key, found.offer.device
    traits = found.offer.traits
    consumed: dict[str, Quantity] = {}
    if traits.shared:
        amounts = query.amounts(request, traits)
        consumed = {
            name: amount.text for name, amount in zip(traits.capacities.names, amounts, strict=True)
        }
    return DeviceResult(
        request=request.full_name,
        driver=driver,
        pool=pool,
        device=device.name,
        admin_access=request.admin_access or None,
        tolerations=request.spec.tolerations,
        binding_conditions=device.binding_conditions,
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=share_id() if traits.shared else None,
        consumed_capacity=consumed or None,
    )


# ---------------------------------------------------------------- configuration


def _class_config(picks: Iterable[RequestQuery]) -> Iterator[AllocatedConfiguration]:
    """The configuration of each class once, in the order of the requests, for all requests of the class."""
    requests: dict[str, list[str]] = {}
    config: dict[str, tuple[DeviceConfiguration, ...]] = {}
    for request in picks:
        if request.device_class is not None:
            name = request.device_class.name
            requests.setdefault(name, []).append(request.full_name)
            config[name] = request.device_class.spec.config or ()
    for name, own in config.items():
        for each in own:
            yield AllocatedConfiguration(_FROM_CLASS, tuple(requests[name]), each.opaque)


def _claim_config(
    config: Iterable[DeviceConfiguration], picks: Sequence[RequestQuery], *, once: bool
) -> Iterator[AllocatedConfiguration]:
    """The claim's own configuration. One that names requests is repeated for each of them that was allocated.

    ``once``: not repeated, which is the rule of Kubernetes 1.37.
    """
    for each in config:
        named = set(each.requests or ())
        times = sum(not named.isdisjoint(request.names) for request in picks) if named else 1
        for _ in range(min(times, 1) if once else times):
            yield AllocatedConfiguration(_FROM_CLAIM, each.requests or None, each.opaque)


def _without_names(
    config: AllocatedConfiguration, picks: Iterable[RequestQuery]
) -> AllocatedConfiguration:
    """A configuration for all requests does not name them: none stands for all."""
    named = config.requests or ()
    if not named or any(request.names.isdisjoint(named) for request in picks):
        return config
    return msgspec.structs.replace(config, requests=None)


# ---------------------------------------------------------------- nodes


def _node_selector(chosen: Iterable[ChosenDevice], node_name: str) -> NodeSelector | None:
    """A selector of the nodes that reach all devices; None for all nodes.

    It selects the one node if a device is only reached from there or binds to its node, and otherwise nodes with
    everything that the slices or devices demand.
    """
    fields: list[Requirement] = []
    expressions: list[Requirement] = []
    for found in chosen:
        device, spec = found.offer.device, found.offer.slice.spec
        where = device if spec.per_device_node_selection else spec
        if where.node_name is not None or device.binds_to_node:
            name = Requirement(NAME_FIELD, "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(name,)),))
        if where.node_selector is None:
            continue
        for term in where.node_selector.node_selector_terms or ():
            _add(term.match_fields, fields)
            _add(term.match_expressions, expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions) or None, tuple(fields) or None),))


def _add(requirements: Iterable[Requirement] | None, to: list[Requirement]) -> None:
    """Adds the requirements that ``to`` does not have yet. The order of their values does not matter."""
    for requirement in requirements or ():
        if not any(_same(requirement, known) for known in to):
            to.append(requirement)


def _same(one: Requirement, other: Requirement) -> bool:
    same_test = (one.key, one.operator) == (other.key, other.operator)
    return same_test and set(one.values or ()) == set(other.values or ())
