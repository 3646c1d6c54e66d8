"""Answers for aiohttp's ClientSession without a server."""

from types import SimpleNamespace

import aiohttp
import aioresponses


class Response(aiohttp.ClientResponse):
    """aiohttp 3.14 asks what has written the request; aioresponses 0.7.9 does not say."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, stream_writer=SimpleNamespace(output_size=0), **kwargs)


class Responses(aioresponses.aioresponses):
    """aioresponses for the aiohttp that is used here. What no answer was given for is refused."""

    def add(self, *args, **kwargs):
        super().add(*args, response_class=Response, **kwargs)
