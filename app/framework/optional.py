"""What a plugin may offer beyond the extension points: optional base classes, each with one promise.

They make decisions faster, or change which nodes a plugin is called with. A profile checks them once, when it is built;
a method of the same name in a class without the base class means nothing (docs/plugins.md, "Speed").
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from app.framework.classes import Trait
from app.framework.handle import Effects
from app.framework.interface import CycleState
from app.model.pod import Pod, PodTemplate
from app.model.pod_groups import PodGroup
from app.model.status import Status


class UndecidedOnly:
    """A Filter plugin whose view leaves out rows that PreFilter or an earlier filter has rejected.

    The default is all rows, because selecting rows costs more than a cheap filter.
    """


class ZeroNormalized:
    """A NodeLocal Score plugin whose ``normalize`` gives all nodes one score if their raw scores are all 0.

    ``normalize`` need not be called then.
    """

    #: That score.
    ZERO_NORMALIZED: ClassVar[int]


class ColumnScore(ABC):
    """A Score plugin, without PreScore and ``normalize``, that keeps the scores of all rows between decisions."""

    @abstractmethod
    def column(self, pod: Pod) -> npt.NDArray[np.integer[Any]] | None:
        """The score of every row, at least int[table.size], as ``score`` gives it; None for 0 on every row.

        Scores that have changed are another array.
        """


class SteadySkip:
    """A plugin whose PreFilter, once it has skipped a pod, skips it and its replicas until its surroundings change.

    The surroundings are the pod itself, objects other than pods, and pods with affinity terms (NodeTable.surroundings).
    Replicas (Pod.kind) have the same template, namespace, labels, controller and group; what the plugin writes to the
    cycle state while it skips one of them holds for all.
    """

    def skips_scoring_steadily(self, template: PodTemplate) -> bool:
        """Whether the same holds for PreScore and the pods of this template."""
        del template
        return True


class AcceptsAll(ABC):
    """A Filter plugin that can tell after PreFilter that it rejects no node."""

    @abstractmethod
    def accepts_all(self, state: CycleState, pod: Pod) -> bool:
        """Whether Filter rejects no node, as far as that can be said without a pass over all rows."""


class OnlyNarrows(ABC):
    """A Filter plugin that can tell after PreFilter that pods which are added never make a rejected node feasible."""

    @abstractmethod
    def only_narrows(self, state: CycleState) -> bool:
        """Whether that holds for the pod of this attempt."""


class ByTraits(ABC):
    """A Filter or Score plugin that gives nodes with equal traits the same result (app.framework.classes)."""

    @abstractmethod
    def traits(self, pod: Pod) -> Sequence[Trait] | None:
        """What Filter and Score depend on; None if nodes are too different."""


class IgnoresOtherPods:
    """A NodeLocal plugin that reads nothing of a spec that is about other pods or volumes.

    These are podAffinity, podAntiAffinity, topologySpreadConstraints and volumes (PodTemplate.stem). Templates that
    differ only
    in these share the plugin's results if all NodeLocal plugins of the profile promise this.
    """


class FreesClaims(ABC):
    """A PostFilter plugin that can free claims which the pods of a group share."""

    @abstractmethod
    def shares_claims(self) -> bool:
        """Whether pods share claims with their groups at all; always the same."""

    @abstractmethod
    async def free_for_group(
        self, group: PodGroup, states: Iterable[CycleState], effects: Effects
    ) -> Status:
        """Frees one claim of a group of which too few pods fit and none has a node, so that it may get other devices.

        ``states`` are those of its pods. Success if there is nothing to free; UnschedulableAndUnresolvable if no
        preemption must follow.
        """
