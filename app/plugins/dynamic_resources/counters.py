"""Counters that partitions of a device share: what a device consumes must be left (KEP-4815).

As in kube-scheduler, pools of one name share one account, whatever their driver, and what is left of it is what is left of
the first of them from which a device was asked for; counters that are not in the account are not limited.
"""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from app.plugins.dynamic_resources.pools import Consumption, CounterName


class _Account:
    __slots__ = ("consumed", "exhausted", "left")

    def __init__(self, left: Mapping[CounterName, int]) -> None:
        self.left: Final = left
        #: More than there is was allocated, of any counter: nothing more can be.
        self.exhausted: Final = any(amount < 0 for amount in left.values())
        self.consumed: Final[defaultdict[CounterName, int]] = defaultdict(int)

    def suffices(self, name: CounterName) -> bool:
        return name not in self.left or self.consumed[name] <= self.left[name]


class Counters:
    """What is consumed in one search, on top of what is in use."""

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: Final[dict[str, _Account]] = {}

    def consume(self, pool: str, consumes: Consumption, left: Mapping[CounterName, int]) -> bool:
        """Takes as much as a device of the pool consumes, unless it is not left. ``left``: what is, before this search."""
        account = self._accounts.get(pool)
        if account is None:
            account = self._accounts[pool] = _Account(left)
        if account.exhausted:
            return False
        for name, amount in consumes:
            account.consumed[name] += amount
        if all(account.suffices(name) for name, _ in consumes):
            return True
        self.release(pool, consumes)
        return False

    def release(self, pool: str, consumes: Consumption) -> None:
        """Gives it back."""
        consumed = self._accounts[pool].consumed
        for name, amount in consumes:
            consumed[name] -= amount
