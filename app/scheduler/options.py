"""Options of ``run`` that are not in the configuration file."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.model.features import OLDEST
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
    #: The version whose rules hold; None for that of the API server.
    version: str | None = OLDEST
    #: The feature gates that are set, or the names of those that are on.
    features: Mapping[str, bool] | frozenset[str] = frozenset()
    #: The directory into which all that happens is recorded; None: nothing is.
    record: Path | None = None
    #: Whether names and labels are hidden in it.
    redact: bool = False
    #: Seed of the random numbers for ties and jitter; None draws one.
    seed: int | None = None
