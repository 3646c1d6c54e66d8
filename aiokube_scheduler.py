"""In a checkout: the installed package's names for ``app`` and ``extenders``.

A wheel has the modules of both folders in the package ``aiokube_scheduler`` (hatch_build.py), because their own names
are too common for a shared environment. Plugins and extenders import them by that name, here as well; each module is
loaded once.
"""

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import InspectLoader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType

__path__: list[str] = []


def _real(name: str) -> str:
    """The module's name in a checkout."""
    rest = name.removeprefix(f"{__name__}.")
    return rest if rest.partition(".")[0] == "extenders" else f"app.{rest}"


class _Loader(InspectLoader):
    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__
        sys.modules[name] = importlib.import_module(_real(name))

    def is_package(self, fullname: str) -> bool:
        spec = find_spec(_real(fullname))
        return spec is not None and spec.submodule_search_locations is not None

    def get_code(self, fullname: str) -> CodeType | None:
        """For ``python -m``."""
        spec = find_spec(_real(fullname))
        assert spec is not None  # noqa: S101 - else find_spec of the finder says so
        assert isinstance(spec.loader, InspectLoader)  # noqa: S101 - these are files
        return spec.loader.get_code(spec.name)

    def get_source(self, fullname: str) -> None:
        """The real module has it."""


class _Finder(MetaPathFinder):
    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002 - importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002 - importlib's signature
    ) -> ModuleSpec | None:
        """See MetaPathFinder."""
        if not fullname.startswith(f"{__name__}.") or find_spec(_real(fullname)) is None:
            return None
        loader = _Loader()
        return ModuleSpec(fullname, loader, is_package=loader.is_package(fullname))


if __name__ == "__main__":
    from app.cli import main

    main()

#: Before the finder of files, which would load the modules of the packages a second time.
sys.meta_path.insert(0, _Finder())
