"""Builds the wheel: the folders ``app`` and ``extenders`` as the one package ``aiokube_scheduler``.

Their own names are too common for an environment that is shared with others. Only names of modules in import statements
change, so that lines, and with them tracebacks, are those of the repository.
"""

import ast
import shutil
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE: Final = "aiokube_scheduler"
#: Folders of the repository with their packages in a wheel.
MOVED: Final = {"app": PACKAGE, "extenders": f"{PACKAGE}.extenders"}


def installed_name(module: str) -> str:
    """A module's name in a wheel."""
    root, dot, rest = module.partition(".")
    return f"{MOVED.get(root, root)}{dot}{rest}"


def rewritten(source: str) -> str:
    """A module with its imports by their names in a wheel. Raises ValueError for ``import app.x``, which cannot be
    renamed.
    """
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            if own := [each.name for each in node.names if installed_name(each.name) != each.name]:
                raise ValueError(f"line {node.lineno}: write 'from', not 'import {own[0]}'")
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            before, after = f"from {node.module} ", f"from {installed_name(node.module)} "
            lines[node.lineno - 1] = lines[node.lineno - 1].replace(before, after, 1)
    return "".join(lines)


class PackageHook(BuildHookInterface[Any]):
    """Rewrites the modules and puts them into the wheel. An editable installation uses the checkout as it is."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See BuildHookInterface."""
        if version == "editable":
            return
        self._made = Path(tempfile.mkdtemp())
        root = Path(self.root)
        for folder in MOVED:
            for file in sorted((root / folder).rglob("*")):
                if not file.is_file() or not belongs(file.relative_to(root), root):
                    continue
                own = installed_name(folder).replace(".", "/")
                target = self._made / own / file.relative_to(root / folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                if file.suffix == ".py":
                    target.write_text(rewritten(file.read_text("utf-8")), "utf-8")
                else:
                    shutil.copyfile(file, target)
        build_data["force_include"][str(self._made / PACKAGE)] = PACKAGE

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        """See BuildHookInterface."""
        if version != "editable":
            shutil.rmtree(self._made)


def belongs(file: Path, root: Path) -> bool:
    """Whether a file of the repository is in the wheel; documents and samples in other languages are not.

    ``file`` is relative to ``root``.
    """
    if "__pycache__" in file.parts:
        return False
    if file.parts[0] == "app":
        return True
    return (root / file.parent / "__init__.py").exists() and file.suffix != ".md"
