"""Chromium without a window, driven over its DevTools protocol."""

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.whole.harness import WAIT_SECONDS

CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
HINT = "needs Chromium: apt-get install chromium, or brew install --cask chromium"
NEEDS_CHROMIUM = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason=HINT)
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
)


class Page:
    """One tab. ``complaints`` are errors and warnings of the console, exceptions and requests that failed."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self._loaded = asyncio.Event()

    async def read(self) -> None:
        """Reads answers and events, until the socket is closed."""
        async for message in self._socket:
            said = json.loads(message.data)
            if "id" in said:
                self._answers.pop(said["id"]).set_result(said)
            else:
                self._note(said["method"], said["params"])

    def _note(self, method: str, params: dict[str, Any]) -> None:
        if method == "Page.loadEventFired":
            self._loaded.set()
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in {
            "error",
            "warning",
            "assert",
        }:
            self.complaints.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in {"error", "warning"}:
            self.complaints.append(json.dumps(params["entry"]))
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])

    async def send(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        said = await asyncio.wait_for(answer, WAIT_SECONDS)
        assert "error" not in said, (method, said)
        result: dict[str, Any] = said["result"]
        return result

    async def open(self, url: str) -> None:
        """Opens a page; returns once it is loaded."""
        self._loaded.clear()
        await self.send("Page.navigate", url=url)
        await asyncio.wait_for(self._loaded.wait(), WAIT_SECONDS)

    async def ask(self, expression: str) -> Any:
        """The value of an expression, or of the promise that it is."""
        result = await self.send(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, (expression, result)
        return result["result"].get("value")

    async def until(self, condition: str, seconds: float = WAIT_SECONDS) -> Any:
        """Asks for each picture that is drawn whether the condition holds; its value."""
        return await self.ask(
            f"""new Promise((resolve, reject) => {{
              const end = performance.now() + {seconds * 1000};
              const look = () => {{
                const value = (() => ({condition}))();
                if (value) resolve(value);
                else if (performance.now() > end) reject(new Error({json.dumps(condition)}));
                else setTimeout(look, 10);
              }};
              look();
            }})"""
        )

    async def size(self, width: int, height: int = 900) -> None:
        await self.send(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    async def prefer(self, scheme: str) -> None:
        """``dark`` or ``light``."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        await self.send("Emulation.setEmulatedMedia", features=features)

    async def press(self, key: str) -> None:
        text = {"text": key} if len(key) == 1 else {"text": "\r"} if key == "Enter" else {}
        codes = {
            "Enter": 13,
            "Escape": 27,
            "ArrowLeft": 37,
            "ArrowUp": 38,
            "ArrowRight": 39,
            "ArrowDown": 40,
        }
        more = {"windowsVirtualKeyCode": codes[key]} if key in codes else {}
        await self.send("Input.dispatchKeyEvent", type="keyDown", key=key, **text, **more)
        await self.send("Input.dispatchKeyEvent", type="keyUp", key=key, **more)

    async def picture(self, path: Path, *, whole: bool = True) -> None:
        """Writes a PNG of the page, or of what the window shows."""
        shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        await asyncio.to_thread(path.write_bytes, base64.b64decode(shot["data"]))


@contextlib.asynccontextmanager
async def browsing(folder: Path, *flags: str) -> AsyncIterator[Page]:
    """A tab of a new browser with these flags, whose profile is in ``folder``."""
    assert CHROMIUM is not None, HINT
    process = await asyncio.create_subprocess_exec(
        CHROMIUM,
        *FLAGS,
        *flags,
        f"--user-data-dir={folder}",
        "about:blank",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        port = await asyncio.wait_for(_port(folder / "DevToolsActivePort"), WAIT_SECONDS)
        async with aiohttp.ClientSession() as session:
            async with session.get(f"http://127.0.0.1:{port}/json/list") as answer:
                (tab,) = [each for each in await answer.json() if each["type"] == "page"]
            async with session.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                page = Page(socket)
                reading = asyncio.create_task(page.read())
                for domain in ("Page", "Runtime", "Log", "Network"):
                    await page.send(f"{domain}.enable")
                yield page
            await reading
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _port(file: Path) -> int:
    """The port that the browser has written into its profile."""
    while True:
        with contextlib.suppress(OSError, IndexError, ValueError):
            return int(file.read_text().splitlines()[0])
        await asyncio.sleep(0.02)
