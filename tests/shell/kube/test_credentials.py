"""Credentials that change while the client runs: renewed in time, once for many, and kept where there are no new ones."""

import asyncio

import pytest

from app.kube.connection import Connection, Identity
from app.kube.credentials import RENEWAL_PAUSE, RENEWAL_RETRY, Credentials
from app.kube.errors import ConfigurationError

pytestmark = pytest.mark.looptime


class Issuer:
    """Hands out a new token each time it is asked, or fails."""

    def __init__(self, valid_for):
        self.valid_for = valid_for
        self.asked = 0
        self.broken = False

    async def __call__(self):
        self.asked += 1
        if self.broken:
            raise ConfigurationError("the plugin is away")
        return Identity(f"Bearer {self.asked}", valid_for=self.valid_for)


async def test_credentials_are_renewed_in_time(caplog):
    issuer = Issuer(valid_for=60)
    credentials = Credentials(Connection("http://x", issuer))
    await credentials.load()

    async def token():
        return (await credentials.current()).headers("", None, "")["Authorization"]

    assert await token() == "Bearer 1"
    await asyncio.sleep(59)
    assert await token() == "Bearer 1"
    await asyncio.sleep(1)
    assert await token() == "Bearer 2"
    issuer.broken = True
    await asyncio.sleep(60)
    assert await token() == "Bearer 2", "the old ones stay while there are no new ones"
    assert await token() == "Bearer 2"
    assert issuer.asked == 3, "and are not asked for with every request"
    assert "the plugin is away" in caplog.text
    issuer.broken = False
    await asyncio.sleep(RENEWAL_RETRY)
    assert await token() == "Bearer 4"


async def test_many_401s_renew_once():
    issuer = Issuer(valid_for=None)
    credentials = Credentials(Connection("http://x", issuer))
    await credentials.load()
    await asyncio.sleep(5)
    refused = (await credentials.current()).number
    assert await asyncio.gather(*(credentials.renew(refused) for _ in range(9))) == [True] * 9
    await asyncio.sleep(5)
    assert await credentials.renew(refused), "a late answer to an old token"
    assert issuer.asked == 2


async def test_a_source_without_better_credentials_is_not_asked_with_every_401():
    asked = 0

    async def same_again():
        nonlocal asked
        asked += 1
        return Identity("Bearer 1")

    credentials = Credentials(Connection("http://x", same_again))
    await credentials.load()
    refused = (await credentials.current()).number
    await asyncio.sleep(RENEWAL_PAUSE)
    assert not await credentials.renew(refused)
    assert not await credentials.renew(refused)
    assert asked == 2
    await asyncio.sleep(RENEWAL_PAUSE)
    assert not await credentials.renew(refused)
    assert asked == 3
