import contextlib
import json

from tests.bench.cluster import Cluster


class Watches:
    """Answers each watch with the next of the lists of events, and notes from which version it was."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.since = []

    @contextlib.asynccontextmanager
    async def stream(self, _path, *, params, read_timeout):
        self.since.append(params["resourceVersion"])
        assert read_timeout > 0
        yield self._chunks()

    async def _chunks(self):
        if not self.answers:
            raise EOFError
        for event in self.answers.pop(0):
            yield json.dumps(event, separators=(",", ":")).encode() + b"\n"


def bound(name, version):
    metadata = {"name": name, "resourceVersion": str(version)}
    return {"type": "MODIFIED", "object": {"metadata": metadata, "spec": {"nodeName": "n"}}}


async def test_bindings_are_seen_after_the_history_has_gone():
    gone = {"type": "ERROR", "object": {"kind": "Status", "metadata": {}, "code": 410}}
    watches = Watches(
        [bound("pod-1", 10)], [gone], [bound("pod-3", 30), bound("pod-1", 10), bound("pod-2", 20)]
    )
    found = []
    with contextlib.suppress(EOFError):
        async for name, _ in Cluster(watches).bindings("5"):
            found.append(name)
    assert found == ["pod-1", "pod-3", "pod-2"]
    assert watches.since == ["5", "10", "", "30"]
