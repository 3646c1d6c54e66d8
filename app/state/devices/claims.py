"""ResourceClaims as they are known: what the API server answered to a write counts before the watch shows it.

See docs/spec/plugins/dynamic-resources.md#prebind.

Between a write and its watch event another pod may be decided: it must not be given the devices that the claim has got.
"""

from collections.abc import Iterator
from typing import Final

from app.model.devices import EXTENDED_RESOURCE_CLAIM, ResourceClaim
from app.state.lister import Follower, Lister

_Key = tuple[str, str]


class ResourceClaims:
    """The claims, each in the newest version that was seen in the watch or in an answer."""

    def __init__(self, lister: Lister[ResourceClaim]) -> None:
        self._lister: Final = lister
        self._written: Final[dict[_Key, ResourceClaim]] = {}
        self._followers: Final[list[Follower[ResourceClaim]]] = []
        #: The claims that stand for a pod's extended resources, by the uid of the pod.
        self._extended: Final[dict[str, ResourceClaim]] = {}
        for known in lister:
            self._index(None, known)
        self.follow(self._index)
        lister.follow(self._changed)

    def follow(self, follower: Follower[ResourceClaim]) -> None:
        """Calls ``follower(old, new)`` after every change of what ``get`` answers from now on."""
        self._followers.append(follower)

    def get(self, name: str, namespace: str) -> ResourceClaim | None:
        """The claim, or None."""
        return self._written.get((namespace, name)) or self._lister.get(name, namespace)

    def __iter__(self) -> Iterator[ResourceClaim]:
        """Everything that ``get`` can answer."""
        for stored in self._lister:
            yield self._written.get((stored.namespace, stored.name), stored)

    def for_extended_resources(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that an earlier attempt has made for a pod's extended resources."""
        return self._extended.get(pod_uid)

    def written(self, claim: ResourceClaim) -> bool:
        """Takes over the answer to a write, unless something newer is known; False while the watch has not shown the claim at all.

        A claim that is not in the watch yet is not taken over: if it goes before it is ever seen there, nobody would say so.
        """
        stored = self._lister.get(claim.name, claim.namespace)
        if stored is None or stored.uid != claim.uid:
            return False
        known = self._written.get((claim.namespace, claim.name), stored)
        if _version(claim) > _version(known):
            self._written[claim.namespace, claim.name] = claim
            self._replaced(known, claim)
        return True

    def _changed(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        """The watch has a change: older versions than the one that was written are no news."""
        changed = new or old
        if changed is None:
            return
        key = (changed.namespace, changed.name)
        written = self._written.get(key)
        if written is None:
            self._replaced(old, new)
        elif new is None or new.uid != written.uid or _version(new) >= _version(written):
            del self._written[key]
            self._replaced(written, new)

    def _replaced(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        for follower in self._followers:
            follower(old, new)

    def _index(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        for claim, known in ((old, False), (new, True)):
            owner = None if claim is None else _extended_for(claim)
            if claim is None or owner is None:
                continue
            if known:
                self._extended[owner] = claim
            else:
                self._extended.pop(owner, None)


def _extended_for(claim: ResourceClaim) -> str | None:
    """The uid of the pod whose extended resources a claim stands for."""
    if claim.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owners = claim.metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.controller), None)


def _version(claim: ResourceClaim) -> int:
    """resourceVersion as a number, which those of one kind are to be compared as; 0 for one that is none."""
    version = claim.resource_version
    return int(version) if version.isascii() and version.isdigit() else 0
