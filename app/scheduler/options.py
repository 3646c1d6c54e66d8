"""What the command line says beside the configuration file."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.serving.options import ServingOptions


class RunOptions(msgspec.Struct, frozen=True):
    """Options of ``run`` that are no part of the configuration; durations in seconds."""

    config: Path | None = None
    master: str = ""
    serving: ServingOptions = msgspec.field(default_factory=ServingOptions)
    verbosity: int = 0
    logging_format: str = "text"
    max_unschedulable_seconds: float = 300.0
    #: How long bindings and events may take to finish once the process is told to stop.
    shutdown_seconds: float = 10.0
    #: The command line's flags, for people to see: name -> value.
    flags: Mapping[str, str] = {}
    #: Seed of ties and jitters; None draws one.
    seed: int | None = None
