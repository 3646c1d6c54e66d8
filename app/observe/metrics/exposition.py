"""Metrics as text, and the registry of a process. Apart from their series, because the library takes long to import."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

from app.observe.metrics.series import MetricFamilies

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


def registry_of(families: MetricFamilies) -> CollectorRegistry:
    """A registry of these metrics and those of the process and its interpreter."""
    registry = CollectorRegistry()
    registry.register(families)
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


class _Collected:
    """Metrics as they were when they were collected."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics: Final = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def exposition(registry: CollectorRegistry) -> bytes:
    """The metrics as text of CONTENT_TYPE; formatted in a thread."""
    found = _Collected(list(registry.collect()))
    return await asyncio.to_thread(generate_latest, found)
