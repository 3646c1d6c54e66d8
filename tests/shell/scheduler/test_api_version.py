"""The rules follow the API server's version, at the start and after an upgrade."""

import asyncio

import pytest

from app.kube.errors import KubeApiError
from app.kube.transport import Response
from app.model.features import Features, FeaturesError
from app.scheduler.api_version import RulesChooser


class Server:
    """Answers /version with these texts, one after another; the last one again and again."""

    def __init__(self, *answers: str | Exception) -> None:
        self._answers = list(answers)
        self.asked = 0

    async def get(self, path: str, **_: object) -> Response:
        """One answer."""
        assert path == "/version"
        self.asked += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Response(200, answer.encode())


def version(text: str) -> str:
    return f'{{"gitVersion":"{text}"}}'


async def no_time(_seconds: float) -> None:
    await asyncio.sleep(0)


def chosen(server: Server, flag: str | None = None, **gates: bool) -> Features:
    return asyncio.run(RulesChooser(server, flag, gates, no_time).choose())


DOWN = KubeApiError("connection refused")


def test_the_rules_are_those_of_the_server():
    assert chosen(Server(version("v1.37.1"))) == Features.of("1.37")
    assert chosen(Server(version("v1.30.0"))) == Features.of("1.36")


def test_a_flag_wins_and_nothing_is_asked():
    server = Server(version("v1.36.2"))
    assert chosen(server, "1.37", StorageCapacityScoring=False) == Features.of(
        "1.37", {"StorageCapacityScoring": False}
    )
    assert not server.asked


@pytest.mark.parametrize(
    "answers",
    [(DOWN,), ("nonsense",), (KubeApiError("no", status=404),), ("{}",)],
    ids=["down", "nonsense", "unknown", "empty"],
)
def test_without_an_answer_they_are_those_of_the_oldest(answers):
    server = Server(*answers)
    assert chosen(server) == Features.of("1.36")
    assert server.asked == (3 if answers == (DOWN,) else 1)


def test_a_server_that_comes_soon_is_waited_for():
    assert chosen(Server(DOWN, version("v1.37.0"))).version == "1.37"


def test_gates_that_are_gone_are_left_out_and_others_are_not(caplog):
    server = Server(version("v1.37.0"))
    found = chosen(server, GenericWorkload=True, GangScheduling=True)
    assert "GangScheduling" in found
    assert "Kubernetes 1.37 has no feature gate GangScheduling: it is left out" in caplog.text
    with pytest.raises(FeaturesError, match="locked to true"):
        chosen(server, NodeDeclaredFeatures=False)


async def upgraded(*answers: str | Exception, flag: str | None = None) -> int:
    """How often the server was asked until the upgrade counted; the test ends after many looks."""
    server = Server(*answers)
    looks = 0

    async def look(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        if looks > 30:
            raise TimeoutError
        await asyncio.sleep(0)

    await RulesChooser(server, flag, {}, look).until_upgraded(Features.of("1.36"))
    return server.asked


def test_an_upgrade_counts_once_all_servers_say_so():
    old, new = version("v1.36.2"), version("v1.37.0")
    assert asyncio.run(upgraded(old, new)) == 4
    assert asyncio.run(upgraded(new, old, new, new, DOWN, new)) == 6
    # A patch is no upgrade, and a flag says that none matters.
    for answers, flag in (((version("v1.36.9"),), None), ((new,), "1.36")):
        with pytest.raises(TimeoutError):
            asyncio.run(upgraded(*answers, flag=flag))
