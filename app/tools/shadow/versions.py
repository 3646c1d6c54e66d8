"""Differences between versions of kube-scheduler that are known, and do not count as differences of a configuration.

This scheduler decides as kube-scheduler 1.36 does. A cluster of another version may decide otherwise for that reason alone.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec

from app.model.pod import Pod

_OURS: Final = (1, 36)
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")
#: What DynamicResources says in PostFilter up to 1.36, and a preemptor's message from 1.37 on.
_DEVICES: Final = re.compile(
    r"(?:plugin disabled|no new claims to deallocate|still not schedulable),? ?"
)
_PLACEMENT: Final = re.compile(r" ?preemption: found a potential placement for pod on node .*$")


class ServerVersion(msgspec.Struct, frozen=True, rename="camel"):
    """The answer of ``/version``, as far as it is used."""

    git_version: str = "?"


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

    def known(self, pod: Pod, plugins: Sequence[str]) -> str:
        """Why a difference through these plugins does not count; empty if it does."""
        for difference in self.differences:
            if difference.plugin in plugins and difference.concerns(pod):
                return difference.text
        return ""


def _has_volumes(pod: Pod) -> bool:
    return bool(pod.template.volumes)


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
_SINCE_37: Final = (
    KnownDifference(
        "VolumeBinding",
        "1.37 scores nodes by the storage that is left for unbound claims",
        _has_volumes,
    ),
    KnownDifference(
        "NodeVolumeLimits",
        "1.37 refuses nodes without a CSI driver that asks for it",
        _has_volumes,
    ),
    KnownDifference(
        "ImageLocality",
        "1.37 counts image volumes among the images",
        lambda pod: bool(pod.spec.volumes),
    ),
    KnownDifference(
        "InterPodAffinity",
        "1.37 reads namespace selectors of affinity terms once only",
        lambda pod: pod.template.has_affinity,
    ),
)


def _shown(number: tuple[int, ...]) -> str:
    return ".".join(map(str, number))


def version_of(text: str) -> Version:
    """What is known of a server's version, such as ``v1.36.2``."""
    found = _VERSION.match(text)
    number = (int(found[1]), int(found[2])) if found else _OURS
    if found is None:
        return Version(("The version of the API server is unknown: it is taken for 1.36.",))
    if number == _OURS:
        return Version()
    known = (
        _SINCE_37 if number > _OURS else (*_BEFORE_36, *(_BEFORE_34 if number < (1, 34) else ()))
    )
    lines = [f"Does not count: {each.text}." for each in known]
    lines.append(
        f"Does not count: {_shown(min(number, (1, 37)))} has other texts about devices and preemption in messages."
    )
    if number != (1, 37):
        lines.append("Further differences between 1.36 and this version are not known: they count.")
    return Version(tuple(lines), known, other_messages=True)
