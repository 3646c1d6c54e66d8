"""The API server's version, which says whose rules hold unless a flag does: read at the start, then watched.

Servers of one cluster may differ for a while as they are upgraded one by one. A new version counts once it was answered
several times in a row.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import msgspec

from app.kube.errors import UNREADABLE, KubeApiError
from app.kube.transport import Reader
from app.model.features import OLDEST, Features, known_in, version_for
from app.wire.sanitize import decode

log = logging.getLogger(__name__)

#: Seconds between two looks, and for an answer.
LOOK_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 5.0
#: How often at the start a server is asked that cannot be reached, and the seconds in between.
_TRIES: Final = 3
_BETWEEN: Final = 1.0
_SERVER_ERROR: Final = 500
#: Equal answers in a row after which a new version counts.
_EQUAL_ANSWERS: Final = 3
#: Characters of a version that are shown.
_LONGEST: Final = 64


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``/version``, as far as it is used."""

    git_version: str = ""


_VERSION: Final = msgspec.json.Decoder(ServerVersion)


async def server_version(reader: Reader) -> str:
    """What the API server says it is, such as ``v1.37.1``. Raises KubeApiError, or one of UNREADABLE."""
    answer = await reader.get("/version", timeout=ANSWER_SECONDS)
    return decode(_VERSION, answer.body).git_version[:_LONGEST]


class RulesChooser:
    """Chooses the rules for a process by the version of its API server."""

    def __init__(
        self,
        reader: Reader,
        version: str | None,
        gates: Mapping[str, bool] | frozenset[str],
        sleep: Callable[[float], Awaitable[object]],
    ) -> None:
        """``version``: the one that a flag names."""
        self._reader: Final = reader
        self._version: Final = version
        self._gates: Final = gates if isinstance(gates, Mapping) else dict.fromkeys(gates, True)
        self._sleep: Final = sleep

    async def choose(self) -> Features:
        """The rules that hold; those of OLDEST if the API server does not answer. Raises FeaturesError."""
        if self._version is not None:
            features = Features.of(self._version, self._gates)
            log.info("Deciding as kube-scheduler %s, as --emulated-version says", features)
            return features
        said = await self._ask()
        version = OLDEST if said is None else version_for(said)
        kept = known_in(version, self._gates)
        for name in sorted(self._gates.keys() - kept.keys()):
            log.warning("Kubernetes %s has no feature gate %s: it is left out", version, name)
        features = Features.of(version, kept)
        log.info("Deciding as kube-scheduler %s: the API server is %s", features, said or "unknown")
        return features

    async def _ask(self) -> str | None:
        """What the API server says it is; None if it does not."""
        for left in reversed(range(_TRIES)):
            try:
                return await server_version(self._reader) or None
            except UNREADABLE as error:
                log.warning("The version of the API server cannot be read: %s", error)
                return None
            except KubeApiError as error:
                if 0 < error.status < _SERVER_ERROR or not left:
                    log.warning("The version of the API server is not known: %s", error)
                    return None
            await self._sleep(_BETWEEN)
        return None

    async def until_upgraded(self, features: Features) -> None:
        """Returns when other rules would be chosen; never if a flag names the version."""
        equal, last = 0, features.version
        while True:
            await self._sleep(LOOK_SECONDS)
            if self._version is not None:
                continue
            try:
                said = await server_version(self._reader)
            except (KubeApiError, *UNREADABLE):
                continue
            version = version_for(said) if said else features.version
            equal = equal + 1 if version == last else 1
            last = version
            if version != features.version and equal >= _EQUAL_ANSWERS:
                log.warning(
                    "The API server is %s now: starting again to decide as kube-scheduler %s, not %s",
                    said,
                    version,
                    features.version,
                )
                return
