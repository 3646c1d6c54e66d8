"""A small kit for extenders in Python: typed requests and answers, and a web application made from functions.

It needs only aiohttp and msgspec; see README.md.
"""

from .app import make_app, run  # noqa: TID252 - so that the folder can be copied
from .types import (  # noqa: TID252 - so that the folder can be copied
    BindRequest,
    Filtered,
    GroupAnswer,
    GroupMembers,
    GroupRequest,
    Metadata,
    Node,
    NodesRequest,
    Pod,
    PreemptRequest,
    Refusal,
    ReleaseRequest,
    Victims,
)
from .waking import Scheduler  # noqa: TID252 - so that the folder can be copied

__all__ = [
    "BindRequest",
    "Filtered",
    "GroupAnswer",
    "GroupMembers",
    "GroupRequest",
    "Metadata",
    "Node",
    "NodesRequest",
    "Pod",
    "PreemptRequest",
    "Refusal",
    "ReleaseRequest",
    "Scheduler",
    "Victims",
    "make_app",
    "run",
]
