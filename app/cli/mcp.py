"""The command ``mcp``: lets an assistant ask a running scheduler, over the Model Context Protocol on standard input and
output.

It can only read: its tools are the questions of ``POST /whatif`` and ``explain``. The official SDK does the protocol;
it is an extra.
"""

import contextlib
import importlib
import json
from collections.abc import Awaitable, Callable
from typing import Any, Final

import click

from app.cli.process import explained, run_loop
from app.cli.target_flags import target_options
from app.kube.errors import ConnectionSettingsError
from app.tools.scheduler_client import Link, NotAnswered, SchedulerTarget, story_of

_PATH: Final = "/whatif"
#: Seconds until an answer.
_SECONDS: Final = 60.0
_INSTRUCTIONS: Final = (
    "Questions to a running Kubernetes scheduler. Nothing is changed, whatever is asked. "
    "Manifests are those of kubectl apply, as JSON."
)

_Manifests = list[dict[str, Any]]


class McpMissing(Exception):  # noqa: N818 - says what to do
    """The SDK is not installed."""


class Tools:
    """What an assistant can ask. The texts of these functions are what it reads."""

    def __init__(self, target: SchedulerTarget, link: Link, failed: type[Exception]) -> None:
        """``failed``: the SDK's exception for an answer that says what is wrong."""
        self._target: Final = target
        self._link: Final = link
        self._failed: Final = failed

    @property
    def all(self) -> tuple[Callable[..., Awaitable[dict[str, Any]]], ...]:
        """The tools."""
        return self.fits, self.how_many, self.drain, self.lose, self.needs, self.explain

    async def fits(
        self,
        objects: _Manifests | None = None,
        pods: list[str] | None = None,
        copies: int | None = None,
    ) -> dict[str, Any]:
        """Where would these pods or workloads go now, whom would they preempt, or why not, and what must change?

        objects: manifests of pods, Deployments, Jobs and so on. pods: pods of the cluster, as NAMESPACE/NAME: a pending
        one is tried itself, of a running one a pod like it. copies: how many of each, instead of its replicas.
        """
        asked = {"objects": objects or [], "pods": pods or [], "copies": copies}
        return await self._ask("fits", changes=True, **asked)

    async def how_many(self, objects: _Manifests) -> dict[str, Any]:
        """How many more pods like these is there room for, and which reason stops it?"""
        return await self._ask("how-many", objects=objects)

    async def drain(self, nodes: list[str]) -> dict[str, Any]:
        """Where would the pods of these nodes go if they were drained, which stay pending, which budgets stand against
        it?"""
        return await self._ask("drain", nodes=nodes)

    async def lose(self, label: str) -> dict[str, Any]:
        """What happens if all nodes with a label (KEY=VALUE, such as topology.kubernetes.io/zone=a) were gone?"""
        return await self._ask("lose", label=label)

    async def needs(
        self, objects: _Manifests, like: str = "", node: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """How many more nodes are needed for these pods? like: the name of a node of that shape, or node: its
        manifest."""
        return await self._ask("needs", objects=objects, like=like, node=node)

    async def explain(self, namespace: str, name: str) -> dict[str, Any]:
        """Why is this pod where it is, or why is it pending? Its attempts, rejections, scores and calls to
        extenders."""
        try:
            found: dict[str, Any] = json.loads(await story_of(self._target, namespace, name))
        except (NotAnswered, ConnectionSettingsError) as error:
            raise self._failed(str(error)) from error
        return found

    async def _ask(self, question: str, **fields: Any) -> dict[str, Any]:
        body = json.dumps({"question": question, "limit": 100, **fields}).encode()
        try:
            found: dict[str, Any] = json.loads(await self._link.post(_PATH, body, _SECONDS))
        except (NotAnswered, ConnectionSettingsError) as error:
            raise self._failed(str(error)) from error
        return found


async def _serve(target: SchedulerTarget) -> None:
    """Answers until standard input ends. Raises McpMissing."""
    try:
        server_of: Any = importlib.import_module("mcp.server.mcpserver").MCPServer
        failed = importlib.import_module("mcp.server.mcpserver.exceptions").ToolError
        read_only = importlib.import_module("mcp_types").ToolAnnotations(
            read_only_hint=True, open_world_hint=False
        )
    except ImportError as error:
        raise McpMissing(
            "the SDK of the Model Context Protocol is missing: pip install 'aiokube-scheduler[mcp]'"
        ) from error
    async with contextlib.aclosing(Link(target, "mcp")) as link:
        server = server_of("aiokube-scheduler", instructions=_INSTRUCTIONS, log_level="WARNING")
        for tool in Tools(target, link, failed).all:
            server.add_tool(tool, annotations=read_only)
        await server.run_stdio_async()


@click.command("mcp")
@target_options
def _mcp(**target: Any) -> None:
    """Answer an assistant's questions about a running scheduler, over the Model Context Protocol.

    Speaks on standard input and output. The tools are fits, how_many, drain, lose, needs and explain; none can change
    anything. They take the rights to "post" the nonResourceURL /whatif and to "get" /debug/pods/*.
    """
    with explained(McpMissing, ConnectionSettingsError):
        run_loop(_serve(SchedulerTarget(**target)))


command: Final = _mcp
