"""How many pods are bound, as a bar on the terminal."""

import contextlib
from collections.abc import Callable, Iterator

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn


@contextlib.contextmanager
def pods_bound(console: Console, title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows the bar; what is yielded takes the number of pods bound so far."""
    columns = (
        TextColumn(f"{title:<22}"),
        BarColumn(
            complete_style="green"
        ),  # the usual red would tell of a mistake where pods stay pending
        MofNCompleteColumn(),
        TextColumn("pods bound"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(title, total=total)
        yield lambda bound: progress.update(task, completed=bound)
