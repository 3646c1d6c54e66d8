"""Bounds of numbers, and quoted text."""

INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1


def quote(text: str) -> str:
    """As Go's %q."""
    escaped = text.encode("unicode_escape").decode() if not text.isprintable() else text
    if text.isprintable():
        escaped = text.replace("\\", "\\\\")
    return '"' + escaped.replace('"', '\\"') + '"'
