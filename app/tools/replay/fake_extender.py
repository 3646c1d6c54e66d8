"""Serves the answers of a recording as an extender: ``python -m aiokube_scheduler.tools.replay.fake_extender TRACE``.

The path of a request ends with the verb: ``/filter``, ``/prioritize``, ``/preempt``, ``/bind``. Prints its URL when it
listens.
"""

import asyncio
import functools
from pathlib import Path
from typing import Final

import click
import msgspec
from aiohttp import web

from app.extender.config import Verb
from app.extender.errors import CallOutcome
from app.scheduler.trace import TraceError
from app.tools.replay.calls import extenders_of
from app.tools.replay.cassette import CassetteAnswers
from app.tools.replay.story import read_story

_MAX_BODY: Final = 256 << 20


def application(trace: Path, extender: str = "") -> web.Application:
    """Answers as the extender of this name, by default the only one. Raises TraceError."""
    names = extenders_of(trace)
    if extender not in names:
        if extender or len(names) != 1:
            raise TraceError(
                f"{trace}: choose one of its extenders: {', '.join(names) or 'there are none'}"
            )
        extender = names[0]
    answers = CassetteAnswers(read_story(trace).cassette)

    async def answer(request: web.Request) -> web.Response:
        try:
            verb = Verb(request.path.rstrip("/").rpartition("/")[2])
            kept, text = await answers.answer(extender, verb, await request.read())
        except (ValueError, msgspec.DecodeError) as error:
            return web.Response(status=400, text=str(error))
        await asyncio.sleep(kept.seconds)
        if kept.outcome.unanswered and request.transport is not None:
            request.transport.abort()
        status = kept.status or (500 if kept.outcome is CallOutcome.STATUS else 200)
        headers = {} if kept.retry_after is None else {"Retry-After": f"{kept.retry_after:.0f}"}
        return web.Response(
            body=text, status=status, headers=headers, content_type="application/json"
        )

    made = web.Application(client_max_size=_MAX_BODY)
    made.router.add_post("/{path:.*}", answer)
    return made


@click.command()
@click.argument("trace", type=click.Path(path_type=Path))
@click.option("--extender", default="", help="Its name in the recording; by default the only one.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", default=0, show_default=True, help="0: any free one.")
def main(trace: Path, extender: str, host: str, port: int) -> None:
    """Answer as a recorded extender did."""
    try:
        served = application(trace, extender)
    except TraceError as error:
        raise click.ClickException(str(error)) from error
    show = functools.partial(click.echo, nl=True)
    web.run_app(served, host=host, port=port, access_log=None, print=lambda text: show(str(text)))


if __name__ == "__main__":
    main()
