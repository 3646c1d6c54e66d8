"""What the command line says beside the configuration file."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of ``run`` that are no part of the configuration; durations in seconds."""

    config: Path | None = None
    kubeconfig: str = ""
    master: str = ""
    secure_port: int = 10259
    bind_address: str = "0.0.0.0"  # noqa: S104 - kube-scheduler's default for --bind-address
    verbosity: int = 0
    logging_format: str = "text"
    max_unschedulable_seconds: float = 300.0
    #: How long bindings and events may take to finish once the process is told to stop.
    shutdown_seconds: float = 10.0
    #: Seed of ties and jitters; None draws one.
    seed: int | None = None
