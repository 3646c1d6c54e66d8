"""An extender that keeps pods out of warm racks, and prefers the coolest."""

import json
import sys
from pathlib import Path

from aiokube_scheduler.extenders.kit import Filtered, NodesRequest, make_app, run

LIMIT = 32  # degrees Celsius
RACK = "example.com/rack"


class Racks:
    def __init__(self, file: Path):
        self._file = file  # {"rack-1": 24, ...}, as measured

    def temperatures(self, request: NodesRequest) -> dict[str, int | None]:
        """By node; None where the rack is not known."""
        racks = json.loads(self._file.read_text())
        return {
            node.name: racks.get(node.metadata.labels.get(RACK)) for node in request.whole_nodes()
        }

    def filter(self, request: NodesRequest) -> Filtered:
        failed = {
            node: f"the rack has {degrees} degrees, {LIMIT} are allowed"
            for node, degrees in self.temperatures(request).items()
            if degrees is not None and degrees > LIMIT
        }
        passed = [name for name in request.names if name not in failed]
        return Filtered(passed, failed, retry_after=30 if failed else None)

    def prioritize(self, request: NodesRequest) -> dict[str, int]:
        """10 for a rack with 10 degrees less than allowed, 0 for the warmest and for one that is not known."""
        return {
            node: 0 if degrees is None else min(10, max(0, LIMIT - degrees))
            for node, degrees in self.temperatures(request).items()
        }


def application(file: Path):
    racks = Racks(file)
    return make_app(filter=racks.filter, prioritize=racks.prioritize)


if __name__ == "__main__":
    run(application(Path(sys.argv[1])), port=8888)
