"""The files that make up a kubeconfig, merged as client-go merges them: whatever several of them say, the first one counts."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from app.kube.errors import ConfigurationError


class Settings(msgspec.Struct, frozen=True):
    """A mapping in a kubeconfig; ``name`` says which, for messages."""

    name: str
    values: Mapping[str, Any]
    file: Path

    def get(self, key: str) -> Any:
        """A value, None if there is none."""
        return self.values.get(key)

    def needed(self, key: str) -> Any:
        """A value that must be there. Raises ConfigurationError."""
        value = self.values.get(key)
        if value is None:
            raise ConfigurationError(f"{self.file}: {self.name} has no {key}")
        return value

    def below(self, key: str) -> "Settings":
        """The mapping under a key, empty if there is none. Raises ConfigurationError."""
        return self._settings(f"{self.name}.{key}", self.values.get(key) or {})

    def each(self, key: str) -> Iterator["Settings"]:
        """The mappings of the list under a key. Raises ConfigurationError."""
        for index, value in enumerate(self.items(key)):
            yield self._settings(f"{self.name}.{key}[{index}]", value)

    def items(self, key: str) -> Sequence[Any]:
        """The list under a key, empty if there is none. Raises ConfigurationError."""
        value = self.values.get(key) or ()
        if not isinstance(value, list | tuple):
            raise ConfigurationError(f"{self.file}: not a kubeconfig: {self.name}.{key} is no list")
        return value

    def path(self, text: Any) -> Path:
        """Paths in a kubeconfig are relative to the file they stand in."""
        return self.file.parent / str(text)

    def _settings(self, name: str, value: object) -> "Settings":
        if not isinstance(value, dict):
            raise ConfigurationError(f"{self.file}: not a kubeconfig: {name} is no mapping")
        return Settings(name, value, self.file)


class KubeconfigFiles:
    """The files of a path list; those that do not exist are passed over as long as there is one."""

    def __init__(self, paths: str) -> None:
        """``paths`` are separated by colons. Raises ConfigurationError."""
        self._paths: Final = paths
        files = [Path(path).expanduser() for path in paths.split(":") if path]
        self._documents: Final = [_read(file) for file in files if file.exists()]
        if not self._documents:
            raise ConfigurationError(f"{paths}: no such file")

    @property
    def current_context(self) -> str:
        """Its name, empty if none is chosen."""
        chosen = (document.get("current-context") for document in self._documents)
        return str(next(filter(None, chosen), ""))

    def find(self, kind: str, name: str) -> Settings:
        """What is said of a "cluster", "context" or "user" of this name, empty if that is nothing, or the name is.

        Raises ConfigurationError.
        """
        for document in self._documents:
            for entry in document.each(f"{kind}s"):
                if name and str(entry.get("name")) == name:
                    found = entry.below(kind)
                    return Settings(f'{kind} "{name}"', found.values, found.file)
        if name:
            raise ConfigurationError(f'{self._paths}: {kind} "{name}" does not exist')
        return Settings(kind, {}, self._documents[0].file)


def _read(file: Path) -> Settings:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeError) as err:
        raise ConfigurationError(f"{file}: not a kubeconfig: {err}") from err
    except OSError as err:
        raise ConfigurationError(f"{file}: {err.strerror}") from err
    if not isinstance(content or {}, dict):
        raise ConfigurationError(f"{file}: not a kubeconfig: it is no mapping")
    return Settings("it", content or {}, file)
