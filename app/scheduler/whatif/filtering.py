"""Answers as an extender's filter would: which nodes take a pod, with all plugins and the scheduler's own extenders.

The protocol is that of extenders (KEP-1819, extender/v1). Nodes are named, or sent whole; whole nodes need not exist:
they are put into the imagined cluster for the question. Nothing is reserved and nothing is written.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np

from app.cycle.attempt import Attempt, NoNodesError, Unfit
from app.extender.dry_run import DryRuns
from app.framework.diagnosis import Diagnosis
from app.model.objects import Node
from app.model.pod import Pod
from app.model.status import Code, SchedulingError
from app.scheduler.whatif.answering import WhatIf
from app.scheduler.whatif.world import ImaginedCluster
from app.state.columns.labels import Mask
from app.state.scheduler_state import SchedulerState
from app.state.table import NodeTable
from app.wire.extender_v1 import ExtenderArgs
from app.wire.whatif_v1 import RefusedError, invalid

#: Seconds until an answer: callers wait for five by default.
SECONDS: Final = 4.5
#: The most nodes of a question.
MAX_NODES: Final = 20_000
_UNKNOWN: Final = "this scheduler does not know the node"
_NOT_EVALUATED: Final = "the node was not evaluated"


class _NodeList(msgspec.Struct):
    items: list[msgspec.Raw] | None = None


class _Args(msgspec.Struct, rename="pascal"):
    """ExtenderArgs."""

    pod: msgspec.Raw
    nodes: _NodeList | None = None
    node_names: list[str] | None = None


class _Items(msgspec.Struct):
    metadata: dict[str, str]
    items: list[msgspec.Raw]


class _Result(msgspec.Struct, rename="pascal"):
    """ExtenderFilterResult."""

    nodes: _Items | None
    node_names: list[str] | None
    failed_nodes: dict[str, str]
    failed_and_unresolvable_nodes: dict[str, str]
    error: str = ""


_ARGS: Final = msgspec.json.Decoder(_Args)


class WhatIfFilter:
    """Answers calls of filter."""

    def __init__(self, whatif: WhatIf, state: SchedulerState, dry_runs: DryRuns) -> None:
        """``state``: that of the scheduler, for the nodes' JSON."""
        self._whatif: Final = whatif
        self._state: Final = state
        self._dry_runs: Final = dry_runs

    async def answer(
        self, body: bytes, gone: Callable[[], bool] = bool
    ) -> tuple[bytes, tuple[str, ...]]:
        """The answer to ExtenderArgs, and the extenders that were not asked because they have no dry run.

        ``gone``: whether nobody waits for it any longer. Raises RefusedError.
        """
        until = asyncio.get_running_loop().time() + SECONDS
        try:
            args = _ARGS.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RefusedError(400, "BadRequest", f"these are no ExtenderArgs: {error}") from error
        sent = None if args.nodes is None else args.nodes.items or []
        names = args.node_names or []
        if max(len(names), len(sent or ())) > MAX_NODES:
            raise invalid(f"more than {MAX_NODES} nodes are asked about")
        pod = self._whatif.sent_pod(bytes(args.pod))
        async with self._whatif.world(SECONDS, gone) as world:
            given: dict[str, bytes] = {}
            if sent is not None:
                given = await self._put(world, sent)
                names = list(given)
            result = _judged(world, pod, names)
        not_asked: tuple[str, ...] = ()
        if result.node_names:
            not_asked = self._dry_runs.not_asked(pod)
            await self._ask_extenders(pod, result, given, until)
        if sent is not None:
            kept = [msgspec.Raw(given[name]) for name in result.node_names or ()]
            result.nodes, result.node_names = _Items({}, kept), None
        return msgspec.json.encode(result), not_asked

    async def _put(self, world: ImaginedCluster, sent: Sequence[msgspec.Raw]) -> dict[str, bytes]:
        """Makes these nodes part of the imagined cluster, as they are sent; their JSON by name. Raises RefusedError."""
        given: dict[str, bytes] = {}
        table = world.state.table
        for number, raw in enumerate(sent):
            node = self._whatif.sent_node(bytes(raw), f"Nodes.items[{number}]")
            row = table.row_of.get(node.name)
            known = None if row is None else table.nodes[row]
            version = node.resource_version
            if known is None or not version or known.resource_version != version:
                try:
                    world.change(Node, known, node)
                except ValueError as error:
                    raise invalid(str(error)) from error
            given[node.name] = bytes(raw)
            await world.pace.wait_for_room()
        return given

    async def _ask_extenders(
        self, pod: Pod, result: _Result, given: dict[str, bytes], until: float
    ) -> None:
        def node_json(name: str) -> bytes | None:
            return given.get(name) or self._state.table.node_json(name)

        args = ExtenderArgs(pod, result.node_names or [], node_json)
        answered = await self._dry_runs.filter(args, until)
        if answered.error is not None:
            result.error, result.node_names = answered.error.detail, []
            return
        left = answered.known(args.names)
        result.failed_nodes |= answered.failed
        result.failed_and_unresolvable_nodes |= answered.unresolvable
        for name in set(args.names).difference(left, answered.failed, answered.unresolvable):
            result.failed_nodes[name] = "an extender rejected it without a reason"
        result.node_names = left


def _judged(world: ImaginedCluster, pod: Pod, names: Sequence[str]) -> _Result:
    """What the plugins say about these nodes."""
    table = world.state.table
    rows = {name: row for name in names if (row := table.row_of.get(name)) is not None}
    attempt = Attempt(
        world.frameworks[pod.spec.scheduler_name],
        table,
        pod,
        nominated=world.state.nominated_for,
        rng=np.random.default_rng(0),
        nominated_node="",
    )
    attempt.within = lambda: _mask(table, list(rows.values()))
    result = _Result(None, [], {}, dict.fromkeys(set(names) - rows.keys(), _UNKNOWN))
    try:
        fitting = set(attempt.find().tolist())
        diagnosis = attempt.diagnosis()
    except Unfit as unfit:
        fitting, diagnosis = set(), unfit.diagnosis
    except NoNodesError:
        return result
    except SchedulingError as error:
        result.error = str(error)
        return result
    passed = [name for name in dict.fromkeys(names) if rows.get(name) in fitting]
    result.node_names = passed
    _add_reasons(result, diagnosis, {n: r for n, r in rows.items() if r not in fitting})
    return result


def _mask(table: NodeTable, rows: Sequence[int]) -> Mask:
    mask = np.zeros(table.size, bool)
    mask[rows] = True
    return mask


def _add_reasons(result: _Result, diagnosis: Diagnosis, rejected: dict[str, int]) -> None:
    for name, row in rejected.items():
        status = diagnosis.status(row)
        where = (
            result.failed_nodes
            if status.code is Code.Unschedulable
            else result.failed_and_unresolvable_nodes
        )
        where[name] = status.message or diagnosis.pre_filter_message or _NOT_EVALUATED
