"""From a registry to bytes. The numbers are taken at once, on the loop; they are written down in a thread.

Always in Prometheus' text format, as kube-scheduler does: in OpenMetrics a bound that is a whole number is another text
(``le="1.0"``), and so another series to whoever asks for ``le="1"``.
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4


class _Collected:
    """Metrics as they were at one moment."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics: Final = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def exposition(registry: CollectorRegistry) -> bytes:
    """The body, of CONTENT_TYPE."""
    collected = _Collected(list(registry.collect()))
    return await asyncio.to_thread(generate_latest, collected)
