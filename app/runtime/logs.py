"""Formats the log as klog's text or as JSON, with the verbosity of Kubernetes' ``-v``.

Modules log as usual. Structured messages, a constant text with keys and values, use ``info``, ``warning`` and
``error``. Callers check ``enabled`` before messages of a higher verbosity, so that these cost nothing when they are not
logged::

    if logs.enabled(2):
        logs.info(log, "Successfully bound pod to node", v=2, pod=pod.key, node=node)

Levels as in kube-scheduler: 2 for bound and unschedulable pods, 3 for every attempt, 4 for debugging, 10 for every
score. Calls to extenders are logged at 5, the beginning of their bodies at 8, more of it at 9 and 10.
"""

import json
import logging
import math
import re
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from app.model.gotext import quote

_LETTERS: Final = {
    logging.DEBUG: "I",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "F",
}
#: Control characters, line separators and changes of the writing direction, but \n and \t.
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_NUMBER: Final = re.compile(r"\d+")
#: Lowest verbosity at which debug messages are logged.
_DEBUGGING: Final = 4


class _Verbosity:
    """The verbosity of the process."""

    level = 0


def enabled(level: int) -> bool:
    """Whether lines of this verbosity are logged."""
    return level <= _Verbosity.level


def set_verbosity(level: int) -> None:
    """Changes ``-v`` while the process runs."""
    _Verbosity.level = level
    debugging = level >= _DEBUGGING
    logging.getLogger().setLevel(logging.DEBUG if debugging else logging.INFO)


def info(logger: logging.Logger, message: str, /, *, v: int = 0, **pairs: object) -> None:
    """Logs a constant text with keys and values. For ``v`` above 0 check ``enabled`` first."""
    logger.info("%s", message, extra={"pairs": pairs, "v": v}, stacklevel=2)


def warning(logger: logging.Logger, message: str, /, **pairs: object) -> None:
    """The same for warnings."""
    logger.warning("%s", message, extra={"pairs": pairs}, stacklevel=2)


def error(logger: logging.Logger, message: str, /, **pairs: object) -> None:
    """The same for errors."""
    logger.error("%s", message, extra={"pairs": pairs}, stacklevel=2)


class Repeats:
    """Logs errors of one cause once in INTERVAL seconds; the next line says how many were left out. At -v 4 all are
    logged."""

    INTERVAL: Final = 10.0
    #: Causes that are remembered, the latest.
    MOST: Final = 100

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic: Final = monotonic
        #: By cause: when it was logged, and how many errors were left out since.
        self._logged: Final[dict[str, tuple[float, int]]] = {}

    def error(self, logger: logging.Logger, message: str, cause: str, /, **pairs: object) -> None:
        """As ``error``; numbers in ``cause`` make no difference."""
        cause, now = _NUMBER.sub("#", f"{message} {cause}"), self._monotonic()
        at, left_out = self._logged.pop(cause, (-math.inf, 0))
        if now - at < self.INTERVAL and not enabled(_DEBUGGING):
            self._logged[cause] = at, left_out + 1
            return
        if left_out:
            pairs["alsoSince"] = left_out
        self._logged[cause] = now, 0
        if len(self._logged) > self.MOST:
            del self._logged[next(iter(self._logged))]
        logger.error("%s", message, extra={"pairs": pairs}, stacklevel=2)


class KlogFormatter(logging.Formatter):
    """``I1121 10:15:00.123456   4711 loop.py:42] text``, or ``] "text" key="value"``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and an indented traceback if there is one."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%m%d %H:%M:%S.%f")
        letter = _LETTERS.get(record.levelno, "I")
        head = (
            f"{letter}{at} {record.process:>7} {record.filename}:{record.lineno}] {_text(record)}"
        )
        if not record.exc_info:
            return head
        return f"{head}\n\t{_unforgeable(self.formatException(record.exc_info))}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (milliseconds), caller, level, msg, v, the pairs, and err."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
        }
        pairs = _pairs(record)
        if pairs is not None:
            if record.levelno <= logging.INFO:
                entry["v"] = getattr(record, "v", 0)
            entry |= {key: _plain(value) for key, value in pairs.items()}
        if record.exc_info:
            entry["err"] = self.formatException(record.exc_info)
        return _json_without_control(json.dumps(entry, default=str))


def configure(*, logging_format: str = "text", verbosity: int = 0) -> None:
    """Sends the log to standard error. From verbosity 4 on it includes debug messages."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if logging_format == "json" else KlogFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    set_verbosity(verbosity)
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _pairs(record: logging.LogRecord) -> Mapping[str, object] | None:
    return getattr(record, "pairs", None)


def _text(record: logging.LogRecord) -> str:
    pairs = _pairs(record)
    if pairs is None:
        return _unforgeable(record.getMessage())
    return " ".join([quote(record.getMessage()), *(f"{k}={_shown(v)}" for k, v in pairs.items())])


def _unforgeable(text: str) -> str:
    """A text that may quote foreign input: further lines are indented, so that none looks like a record."""
    return _escaped(text).replace("\n", "\n\t")


def _escaped(text: str) -> str:
    """The text with control characters and line separators but line feeds and tabs as escapes."""
    return text if text.isprintable() else _CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def _shown(value: object) -> str:
    """A value as klog formats it: texts quoted, texts of several lines as a block, lists as JSON."""
    plain = _plain(value)
    if isinstance(plain, str):
        if "\n" not in plain:
            return quote(plain)
        block = "\n".join(f"\t{line}" for line in _escaped(plain).split("\n"))
        return f"<\n{block}\n >"
    text = json.dumps(plain, ensure_ascii=False, separators=(",", ":"), default=str)
    return _json_without_control(text)


def _json_without_control(text: str) -> str:
    """JSON with those control characters escaped that JSON allows: DEL, C1, line separators."""
    return (
        text if text.isprintable() else _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
    )


def _plain(value: object) -> object:
    """Values that JSON has, and text for others."""
    if isinstance(value, str | int | float | list | tuple | dict) or value is None:
        return value
    return str(value)
