"""The dashboard: a page on this machine that shows a running scheduler (docs/dashboard.md).

server  serves the page, and passes on the feed of the scheduler
static  the page: plain modules, without a build step; the page of a simulation has some of them too
"""

from importlib.resources import files
from typing import Final

#: Content types by the end of a name.
TYPES: Final = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}


def static_files() -> dict[str, bytes]:
    """The files of the pages, by name."""
    folder = files(__name__) / "static"
    return {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.rpartition(".")[2] in TYPES
    }
