"""The command line ``aiokube-scheduler``; ``main`` is the entry point.

There is one module per command, imported when the command is called, so that each loads only what it needs.
"""

from app.cli.root import main

__all__ = ["main"]
