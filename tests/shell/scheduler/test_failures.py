"""What becomes of a pod for which no node was found."""

from types import SimpleNamespace

from app.framework.diagnosis import Diagnosis
from app.framework.interface import PostFilterResult
from app.framework.testing import make_pod
from app.model.status import unschedulable
from app.scheduler.failures import FailureHandler
from app.scheduler.parts import Parts
from app.state.queue.queued_pod import QueuedPod
from tests.shell.clock import LoopClock


async def test_post_filter_gets_the_version_of_the_pod_that_was_judged():
    """The pod may have changed while its attempt waited for extenders, or paused."""
    seen = []

    async def post_filter(_state, pod, _diagnosis, _effects):
        seen.append(pod)
        return PostFilterResult(unschedulable("no"))

    failed = SimpleNamespace(report=False, nominated_node="")
    state = SimpleNamespace(fail=lambda *_args, **_fields: failed)
    failures = FailureHandler(
        Parts(state, LoopClock(), None, None, lambda _event: None), effects=None, reports=None
    )
    framework = SimpleNamespace(commit=SimpleNamespace(post_filter=post_filter), profile_name="p")
    newer = make_pod("newer")
    attempt = SimpleNamespace(pod=newer, state=None, framework=framework)
    await failures.unfit(QueuedPod(make_pod("older"), 0.0), attempt, Diagnosis(node_count=1), 0.0)
    assert seen == [newer]
