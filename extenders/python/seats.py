"""A sample extender: licences counted per node.

The licence manager writes the number of free licences of a node into its annotations::

    metadata: {annotations: {licences.example.com/free: "5"}}

and a pod has the number that it needs in its own::

    metadata: {annotations: {licences.example.com/wanted: "2"}}

Filter rejects the nodes that have too few, prioritize prefers those with the most free ones. Run it with

    python -m aiokube_scheduler.extenders.python.seats --port 8888

and configure it as README.md shows. The Go and TypeScript samples give the same answers.
"""

import argparse
from collections.abc import Mapping
from typing import Final

from extenders.kit import Filtered, Node, NodesRequest, Pod, make_app, run

FREE: Final = "licences.example.com/free"
WANTED: Final = "licences.example.com/wanted"
HIGHEST_SCORE: Final = 10
#: Seconds after which a rejected pod should be tried again, because licences are returned without notice.
RETRY_AFTER: Final = 15


def number(annotations: Mapping[str, str], key: str) -> int | None:
    """An annotation that must be a number: 0 without it, None if it is something else."""
    text = annotations.get(key, "0")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def suits(request: NodesRequest) -> Filtered:
    """The nodes that have enough licences."""
    wanted = number(request.pod.metadata.annotations, WANTED)
    if wanted is None:
        return Filtered([], unresolvable=dict.fromkeys(request.names, _no_number(request.pod)))
    passed, failed, unresolvable = [], {}, {}
    for node in request.whole_nodes():
        free = number(node.metadata.annotations, FREE)
        if wanted and FREE not in node.metadata.annotations:
            unresolvable[node.name] = "node has no licences"
        elif free is None:
            unresolvable[node.name] = f"node's annotation {FREE} is no number"
        elif free < wanted:
            failed[node.name] = f"{wanted} licences wanted, {free} free"
        else:
            passed.append(node.name)
    return Filtered(passed, failed, unresolvable, RETRY_AFTER if failed else None)


def score(request: NodesRequest) -> dict[str, int]:
    """The free licences of a node relative to the best of these nodes: 0 to 10."""
    free = {node.name: _free(node) for node in request.whole_nodes()}
    most = max(free.values(), default=0)
    return {name: HIGHEST_SCORE * left // most if most else 0 for name, left in free.items()}


def _free(node: Node) -> int:
    return number(node.metadata.annotations, FREE) or 0


def _no_number(pod: Pod) -> str:
    return f"pod's annotation {WANTED} is no number: {pod.metadata.annotations[WANTED]}"


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m aiokube_scheduler.extenders.python.seats")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8888, help="0 takes any free port")
    parser.add_argument("--cert", default="", help="PEM file: serve over TLS")
    parser.add_argument("--key", default="", help="PEM file")
    arguments = parser.parse_args()
    run(
        make_app(filter=suits, prioritize=score),
        host=arguments.host,
        port=arguments.port,
        cert=arguments.cert,
        key=arguments.key,
    )


if __name__ == "__main__":
    main()
