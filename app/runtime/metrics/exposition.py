"""From a registry to bytes. The numbers are taken at once, on the loop; they are written down in a thread."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric


class _Collected:
    """Metrics as they were at one moment."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics: Final = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics


async def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """The body and the content type that suits an Accept header: Prometheus' text, or OpenMetrics."""
    encode, content_type = choose_encoder(accept)
    collected = _Collected(list(registry.collect()))
    return await asyncio.to_thread(encode, collected), content_type
