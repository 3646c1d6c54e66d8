"""ResourceClaims as the watch shows them, or as a newer answer to one of our writes has them.

See docs/spec/plugins/dynamic-resources.md#prebind.

Another pod can be decided between a write and its watch event. It must not get the devices that were just written.
"""

from typing import Final

from app.model.devices import EXTENDED_RESOURCE_CLAIM, ResourceClaim
from app.state.assume_cache import AssumeCache
from app.state.lister import Lister


class ResourceClaims(AssumeCache[ResourceClaim]):
    """The claims, each in the newest version that was seen in the watch or in an answer."""

    def __init__(self, lister: Lister[ResourceClaim]) -> None:
        super().__init__(lister, "resourceclaims")
        #: The claims for extended resources, by the uid of their pod.
        self._extended: Final[dict[str, ResourceClaim]] = {}
        for known in lister:
            self._index(None, known)
        self.follow(self._index)

    def for_extended_resources(self, pod_uid: str) -> ResourceClaim | None:
        """The claim that an earlier attempt created for a pod's extended resources."""
        return self._extended.get(pod_uid)

    def written(self, claim: ResourceClaim) -> bool:
        """Keeps the answer to a write, unless a newer version is known. False if the watch has not shown the claim yet.

        Such a claim is not kept: if it is deleted before the watch shows it, no event would remove it.
        """
        stored = self.current(claim.name, claim.namespace)
        if stored is None or stored.uid != claim.uid:
            return False
        known = self.get(claim.name, claim.namespace) or stored
        if _version(claim) > _version(known):
            self._put(claim, claim)
        return True

    def _supersedes(self, stored: ResourceClaim, assumed: ResourceClaim) -> bool:
        return stored.uid != assumed.uid or _version(stored) >= _version(assumed)

    def _index(self, old: ResourceClaim | None, new: ResourceClaim | None) -> None:
        if old is not None and (owner := _extended_for(old)) is not None:
            self._extended.pop(owner, None)
        if new is not None and (owner := _extended_for(new)) is not None:
            self._extended[owner] = new


def _extended_for(claim: ResourceClaim) -> str | None:
    """The uid of the pod whose extended resources a claim is for."""
    if claim.annotations.get(EXTENDED_RESOURCE_CLAIM) != "true":
        return None
    owners = claim.metadata.owner_references or ()
    return next((owner.uid for owner in owners if owner.controller), None)


def _version(claim: ResourceClaim) -> int:
    """The resourceVersion as a number; 0 if it is none, or one that no API server has."""
    version = claim.resource_version
    return int(version) if version.isascii() and version.isdigit() and len(version) < 40 else 0
