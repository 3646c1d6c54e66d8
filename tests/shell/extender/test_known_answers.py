"""What a cycle of a group keeps of the answers, and what that costs."""

import time

import pytest

from app.extender import known_answers
from app.extender.chain import ExtenderChain
from app.extender.known_answers import NOT_KEPT, KnownAnswers
from app.model.pod_groups import GroupKey, LabelledPodGroup
from app.wire.group_v1 import GroupQuestion
from tests.shell.extender.fakes import about, extender, keeps, pod

pytestmark = pytest.mark.looptime


def answers():
    return KnownAnswers(GroupKey(LabelledPodGroup, "ns", "train"), 1)


async def test_an_answer_about_many_pods_is_kept_once():
    names = [f"node-{number:04d}" for number in range(2000)]
    pods = [pod(f"p{number}") for number in range(1000)]
    uids = [each.uid for each in pods]
    asked = extender(
        lambda _verb, _body: {"Answers": [{"PodUIDs": uids, "FailedNodes": {names[0]: "no"}}]},
        group_verb="group",
    )
    known, chain = answers(), ExtenderChain([asked])
    began = time.process_time()
    await chain.ask_group([GroupQuestion(pods, names)], known)
    assert time.process_time() - began < 0.25
    for each in (pods[0], pods[-1]):
        result = await chain.filter(about(*names, who=each), known)
        assert result.survivors == names[1:]
        assert (await chain.prioritize(result.args, known)).tolist() == [0] * 1999
    assert len(asked.fake.requests) == 1


async def test_another_answer_about_one_pod_is_not_about_those_alike():
    """A pod that has a new candidate is asked about alone; what was known of the others stays."""

    def reply(_verb, body):
        uids = [p["metadata"]["name"] for each in body["Members"] for p in each["Pods"]]
        return {"Answers": [{"PodUIDs": [f"uid-{name}" for name in uids]}]}

    asked = extender(reply, group_verb="group")
    known, chain = answers(), ExtenderChain([asked])
    one, other = pod("a"), pod("b")
    await chain.ask_group([GroupQuestion([one, other], ["n1"])], known)
    assert (await chain.filter(about("n1", "n2", who=one), known)).survivors == ["n1", "n2"]
    assert (await chain.filter(about("n1", "n2", who=other), known)).survivors == ["n1", "n2"]
    sent = [each["NodeNames"] for _, body in asked.fake.requests for each in body["Members"]]
    assert sent == [["n1"], ["n2"], ["n2"]]


async def test_the_second_group_verb_is_asked_about_what_the_first_one_left():
    def reply(verdict):
        def answer(_verb, body):
            names = [p["metadata"]["name"] for each in body["Members"] for p in each["Pods"]]
            return {"Answers": [{"PodUIDs": [f"uid-{n}" for n in names], "FailedNodes": verdict}]}

        return answer

    first = extender(
        reply({"n1": "no"}), group_verb="group", bind_verb="", url_prefix="http://one.test"
    )
    second = extender(reply({}), group_verb="group", bind_verb="", url_prefix="http://two.test")
    pods = [pod("a"), pod("b")]
    await ExtenderChain([first, second]).ask_group([GroupQuestion(pods, ["n1", "n2"])], answers())
    (_, body), *more = second.fake.requests
    assert [each["NodeNames"] for each in body["Members"]] == [["n2"]]
    assert len(body["Members"][0]["Pods"]) == 2
    assert not more


async def test_reasons_of_a_cycle_are_bounded(monkeypatch):
    monkeypatch.setattr(known_answers, "MAX_REASONS", 10_000)
    asked = extender(keeps("n2", FailedNodes={"n1": "x" * 4000}))
    known, chain = answers(), ExtenderChain([asked])
    reasons = [
        (await chain.filter(about("n1", "n2", who=pod(f"p{number}")), known)).failed["n1"]
        for number in range(4)
    ]
    assert reasons == ["x" * 4000, "x" * 4000, NOT_KEPT, NOT_KEPT]
