"""Options of ``run`` that are not in the configuration file."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.serving.options import ServingOptions


class RunOptions(msgspec.Struct, frozen=True):
    """Options of ``run``; durations in seconds."""

    config: Path | None = None
    master: str = ""
    serving: ServingOptions = msgspec.field(default_factory=ServingOptions)
    verbosity: int = 0
    logging_format: str = "text"
    max_unschedulable_seconds: float = 300.0
    #: How long bindings and events may take to finish once the process is asked to stop.
    shutdown_seconds: float = 10.0
    #: The flags as given, shown on the endpoint /flagz: name -> value.
    flags: Mapping[str, str] = {}
    #: The feature gates that are turned on, of those that can be (app.cli.flags.SWITCHES).
    features: frozenset[str] = frozenset()
    #: Seed of the random numbers for ties and jitter; None draws one.
    seed: int | None = None
