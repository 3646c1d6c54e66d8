"""Logging: text as klog writes it, or JSON; verbosity as ``-v`` has it in Kubernetes."""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final

_LETTERS: Final = {
    logging.DEBUG: "I",
    logging.INFO: "I",
    logging.WARNING: "W",
    logging.ERROR: "E",
    logging.CRITICAL: "F",
}


class KlogFormatter(logging.Formatter):
    """``I1121 10:15:00.123456   4711 loop.py:42] text``."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and a traceback if there is one."""
        at = datetime.fromtimestamp(record.created, UTC).strftime("%m%d %H:%M:%S.%f")
        letter = _LETTERS.get(record.levelno, "I")
        head = f"{letter}{at} {record.process:>7} {record.filename}:{record.lineno}] {record.getMessage()}"
        return f"{head}\n{self.formatException(record.exc_info)}" if record.exc_info else head


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts (milliseconds), caller, level, msg and err."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        entry: dict[str, Any] = {
            "ts": round(record.created * 1000, 3),
            "caller": f"{record.filename}:{record.lineno}",
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            entry["err"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def configure(*, logging_format: str = "text", verbosity: int = 0) -> None:
    """Sends the log to standard error. Verbosity 4 and above shows debugging messages too."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if logging_format == "json" else KlogFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO if verbosity < 4 else logging.DEBUG)
    logging.getLogger("asyncio").setLevel(logging.WARNING)
