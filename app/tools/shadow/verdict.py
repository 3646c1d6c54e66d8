"""The verdict on one decision of a cluster's scheduler, and the classes of verdicts (docs/shadow.md)."""

from collections.abc import Mapping
from typing import Final

import msgspec

SAME: Final = "same"
TIE: Final = "tie"
SAMPLED: Final = "sampled"
RACE: Final = "race"
DOES_NOT_FIT: Final = "does-not-fit-here"
NOTHING_FITS: Final = "fits-there-refused-here"
FITS: Final = "refused-there-fits-here"
OTHER_MESSAGE: Final = "other-message"
OTHER_VICTIMS: Final = "other-victims"
VOLUMES: Final = "volumes"
DEVICES: Final = "devices"
OTHER_RULE: Final = "other-rule"
NOT_COMPARABLE: Final = "not-comparable"
UNEXPLAINED: Final = "unexplained"

#: All classes, in the order in which they are shown.
CLASSES: Final = (
    SAME,
    TIE,
    SAMPLED,
    RACE,
    DOES_NOT_FIT,
    NOTHING_FITS,
    FITS,
    OTHER_MESSAGE,
    OTHER_VICTIMS,
    VOLUMES,
    DEVICES,
    OTHER_RULE,
    NOT_COMPARABLE,
    UNEXPLAINED,
)
#: Classes in which this scheduler would have decided as the cluster's scheduler did, or could have.
AGREEING: Final = frozenset({SAME, TIE, SAMPLED, RACE})


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One decision of the cluster's scheduler beside the one of this configuration. A line of the journal."""

    pod: str
    """``namespace/name``."""
    uid: str = ""
    profile: str = ""
    kind: str = msgspec.field(name="class")
    """One of CLASSES."""
    node: str = ""
    """The node that the cluster's scheduler chose or nominated; empty if it refused the pod."""
    node_here: str = ""
    """A best node by this configuration; empty if no node fits."""
    feasible: int = 0
    """The nodes that fit here."""
    equal: int = 0
    """The nodes that have the best score here."""
    better: int = 0
    """The nodes that have a higher score here than ``node``."""
    scores: Mapping[str, int] = {}
    """Of ``node``, by plugin, weighted."""
    scores_here: Mapping[str, int] = {}
    """Of ``node_here``, by plugin, weighted."""
    loss: int = 0
    """How much the total score of ``node`` is below the best one."""
    plugins: tuple[str, ...] = ()
    """The plugins through which the decisions differ, the most likely one first."""
    change: str = ""
    """What would have to change for the decisions to be the same."""
    message: str = ""
    """The message of the cluster's scheduler, if it refused the pod and this differs."""
    message_here: str = ""
    """The message of this configuration, if no node or not that node fits."""
    victims: tuple[str, ...] = ()
    victims_here: tuple[str, ...] = ()
    rules: str = ""
    """The version of Kubernetes whose rules decided here; empty for 1.36."""
    at: float = 0.0
    """When the outcome arrived, in seconds since the epoch."""
    lag: float = 0.0
    """Seconds from the outcome to the verdict."""

    @property
    def agrees(self) -> bool:
        """Whether the decision is, or could have been, the same."""
        return self.kind in AGREEING
