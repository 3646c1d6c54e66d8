"""Records that keep secrets out of logs and tracebacks."""

from typing import ClassVar

import msgspec


class Discreet(msgspec.Struct, frozen=True):
    """A record whose ``repr`` leaves out the fields in ``SECRETS``."""

    SECRETS: ClassVar[frozenset[str]] = frozenset()

    def __repr__(self) -> str:
        shown = [
            f"{name}={getattr(self, name)!r}"
            for name in self.__struct_fields__
            if name not in self.SECRETS
        ]
        return f"{type(self).__name__}({', '.join(shown)})"
