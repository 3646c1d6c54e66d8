"""Differences between versions of kube-scheduler that are known, and do not count as differences of a configuration.

A shadow decides by the rules of the cluster's version, from 1.36 to 1.38, or by those of --emulated-version: then each
decision that these rules change has their name (the upgrade preview). Clusters of other versions may decide otherwise
for that reason alone.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from app.model.features import OLDEST, RULES, Features, Rule, version_for
from app.model.gates import VERSIONS
from app.model.pod import Pod

_OURS: Final = (1, 36)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
#: What DynamicResources says in PostFilter up to 1.36, and a preemptor's message from 1.37 on.
_DEVICES: Final = re.compile(
    r"(?:plugin disabled|no new claims to deallocate|still not schedulable),? ?"
)
_PLACEMENT: Final = re.compile(r" ?preemption: found a potential placement for pod on node .*$")


class KnownDifference(NamedTuple):
    """A difference that another version makes."""

    plugin: str
    text: str
    #: Whether it may change the decision on a pod.
    concerns: Callable[[Pod], bool]


class Version(NamedTuple):
    """What is known of the version of a cluster."""

    #: Lines for people.
    lines: Sequence[str] = ()
    differences: Sequence[KnownDifference] = ()
    #: Whether messages differ in what PostFilter plugins add.
    other_messages: bool = False

    def comparable(self, message: str) -> str:
        """A message without what another version writes in another way."""
        if not self.other_messages:
            return message
        return _PLACEMENT.sub("", _DEVICES.sub("", message)).rstrip()

    def known(self, pod: Pod, plugins: Sequence[str]) -> KnownDifference | None:
        """The difference between versions that explains one through these plugins; None if there is none."""
        for difference in self.differences:
            if difference.plugin in plugins and difference.concerns(pod):
                return difference
        return None


def _of_devices(pod: Pod) -> bool:
    return bool(pod.spec.resource_claims)


_BEFORE_36: Final = (
    KnownDifference(
        "DynamicResources",
        "versions before 1.36 know fewer kinds of claims and devices",
        _of_devices,
    ),
    KnownDifference(
        "NodeDeclaredFeatures",
        "versions before 1.36 do not look at the features that nodes declare",
        lambda _: True,
    ),
)
_BEFORE_34: Final = (
    KnownDifference(
        "NodeResourcesFit",
        "versions before 1.34 do not look at the resources of a pod as a whole",
        lambda pod: pod.spec.resources is not None,
    ),
)


def _shown(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))


def version_of(text: str, here: Features | None = None) -> Version:
    """What is known of a server's version, such as ``v1.36.2``.

    ``here``: the rules that hold here; None for those of the server.
    """
    found = _VERSION.match(text)
    theirs = Features.of(version_for(text))
    here = theirs if here is None else here
    changed = here.changed_to(theirs)
    lines = [_difference(rule, here, theirs) for rule in changed]
    if found is None:
        lines.append(f"The version of the API server is unknown: it is taken for {OLDEST}.")
    number = (int(found[1]), int(found[2])) if found else _OURS
    known: tuple[KnownDifference, ...] = ()
    if number < _OURS:
        known = (*_BEFORE_36, *(_BEFORE_34 if number < (1, 34) else ()))
        lines += [f"Does not count: {each.text}." for each in known]
        lines.append(
            f"Does not count: {_shown(number)} has other texts about devices and preemption in messages."
        )
    if _shown(number) not in VERSIONS:
        lines.append(
            f"Further differences between {here.version} and this version are not known: they count."
        )
    texts = number < _OURS or not {Rule.QuietDevices, Rule.PreemptionMessage}.isdisjoint(changed)
    return Version(tuple(lines), known, other_messages=texts)


def _difference(rule: Rule, here: Features, theirs: Features) -> str:
    newer, older = (here, theirs) if rule in here.rules else (theirs, here)
    return f"By the rules of {newer.version}, not by those of {older.version}: {RULES[rule].text} ({rule})."
