"""The command line: arguments in, settings and an exit status out. ``main`` is the entry point.

One module per command, imported when it is called: the embedded cluster need not load the scheduler, nor ``check-config``
an HTTP client.
"""

from app.cli.root import main

__all__ = ["main"]
