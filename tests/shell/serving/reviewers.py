"""An API server's reviews, as tests want them."""

import asyncio

from app.kube.errors import ServerUnavailable
from app.kube.reviews import Access, User

ALICE = User("alice", ("devs",), "uid-1", {"scope": ("a", "b")})


class Reviews:
    """An API server that knows alice, and lets her see what is in ``allowed``."""

    def __init__(self, *allowed):
        self.allowed = set(allowed)
        self.tokens, self.asked = [], []
        self.broken = False

    async def who_has(self, token):
        self.tokens.append(token)
        await asyncio.sleep(0)
        if self.broken:
            raise ServerUnavailable("etcd is on holiday")
        return ALICE if token == "alices" else None

    async def may(self, user, verb, path):
        self.asked.append((user.name, verb, path))
        await asyncio.sleep(0)
        if self.broken:
            raise ServerUnavailable("etcd is on holiday")
        allowed = (user.name, verb, path) in self.allowed
        return Access(allowed, "" if allowed else "no rule matches")
