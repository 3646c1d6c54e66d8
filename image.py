"""Makes an environment the image's: ``python image.py FOLDER LIBRARY`` removes what never runs, and compiles what runs.

What is removed: tests of libraries, sources in C and Cython, type stubs, programs of libraries, the part of zstandard
that is for other Pythons than CPython (12 MB), and the debug information of extension modules (35 MB). Large libraries
that are hardly ever imported become zip files, 10 MB for 50: kubernetes_asyncio (old auth providers, OpenAPI documents
of the embedded cluster) and pygments (of rich).

The official images of Python come without compiled modules of the standard library. Nobody may write them while the
scheduler runs, so each start would compile those that it imports, for longer than everything else takes. They are put
below LIBRARY, at their paths in the image.
"""

import compileall
import json
import py_compile
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Final

PROGRAM: Final = "aiokube-scheduler"
#: Names by which the program is another command.
NAMES: Final = ("kube-scheduler",)
_UNUSED: Final = frozenset({".a", ".c", ".cpp", ".h", ".hpp", ".pxd", ".pxi", ".pyi", ".pyx"})
#: zstandard has everything twice; CPython imports backend_c.
_UNUSED_MODULES: Final = ("zstandard/_cffi.*", "zstandard/backend_cffi.py")
_ZIPPED: Final = ("kubernetes_asyncio", "pygments")
#: The first statement of the package that is zipped; its own __init__ follows, so that importing it works as before.
_FIRST: Final = "__path__.insert(0, __path__[0] + '.zip/{name}')\n"


#: Never compared with the source: the modification times of files in an image say nothing.
_COMPILED: Final = py_compile.PycInvalidationMode.UNCHECKED_HASH
#: Prints the folder of the standard library, and the modules with which the scheduler runs: the file of each -> its
#: compiled file.
_LOADED: Final = """
import json, sys, sysconfig
import aiokube_scheduler.cli.run, aiokube_scheduler.scheduler.endpoints, aiokube_scheduler.serving.certificates
specs = [getattr(module, "__spec__", None) for module in list(sys.modules.values())]
files = {spec.origin: spec.cached for spec in specs if spec and spec.cached}
json.dump([sysconfig.get_path("stdlib"), files], sys.stdout)
"""


def finish(environment: Path, library: Path) -> None:
    """Does all of it, and prints what became of the debug information."""
    (site,) = environment.glob("lib/python*/site-packages")
    remove_unused(site)
    sys.stdout.write(f"{strip(site)}\n")
    for name in _ZIPPED:
        pack(site, name)
    keep_programs(environment / "bin")
    compileall.compile_dir(site, quiet=1, force=True, invalidation_mode=_COMPILED)
    compile_library(environment / "bin" / "python", library)


def remove_unused(site: Path) -> None:
    """Removes what is not for running a library."""
    for folder in [each for each in site.rglob("tests") if each.is_dir()]:
        shutil.rmtree(folder, ignore_errors=True)
    for file in site.rglob("*"):
        if file.suffix in _UNUSED and file.is_file():
            file.unlink()
    for pattern in _UNUSED_MODULES:
        for file in site.glob(pattern):
            file.unlink()


def strip(site: Path) -> str:
    """Removes the debug information of extension modules, if this machine has binutils; returns what it did.

    The shared libraries in ``*.libs`` stay: auditwheel has changed them in a way that strip may break.
    """
    program = shutil.which("strip")
    if program is None:
        return "there is no strip (binutils): the debug information stays"
    modules = [
        each for each in site.rglob("*.so") if not each.relative_to(site).parts[0].endswith(".libs")
    ]
    before = sum(each.stat().st_size for each in modules)
    subprocess.run([program, "--strip-debug", *modules], check=True)  # noqa: S603 - files of this environment
    after = sum(each.stat().st_size for each in modules)
    return f"debug information of {len(modules)} modules: {(before - after) / 1e6:.0f} MB removed"


def pack(site: Path, name: str) -> None:
    """Moves the modules of a package into ``<name>.zip`` beside it; its ``__init__`` stays, and leads there."""
    package = site / name
    with zipfile.ZipFile(
        site / f"{name}.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=9
    ) as packed:
        for file in sorted(package.rglob("*.py")):
            compiled = file.with_suffix(".pyc")
            py_compile.compile(str(file), str(compiled), doraise=True, invalidation_mode=_COMPILED)
            for each in (file, compiled):
                packed.write(each, each.relative_to(site))
    first = package / "__init__.py"
    text = _FIRST.format(name=name) + first.read_text("utf-8")
    shutil.rmtree(package)
    package.mkdir()
    first.write_text(text, "utf-8")


def compile_library(python: Path, library: Path) -> None:
    """Compiles the modules of the standard library that the scheduler imports; ``/lib/x`` comes to
    ``<library>/lib/x``."""
    asked = [str(python), "-c", _LOADED]
    found = subprocess.run(asked, check=True, stdout=subprocess.PIPE)  # noqa: S603 - the environment's own
    folder, files = json.loads(found.stdout)
    for source, compiled in files.items():
        if Path(source).is_relative_to(folder):
            target = library / Path(compiled).relative_to("/")
            py_compile.compile(source, str(target), doraise=True, invalidation_mode=_COMPILED)


def keep_programs(folder: Path) -> None:
    """Removes programs other than Python and ours, which gets its other names."""
    for file in folder.iterdir():
        if not file.name.startswith("python") and file.name != PROGRAM:
            file.unlink()
    for name in NAMES:
        shutil.copy2(folder / PROGRAM, folder / name)


if __name__ == "__main__":
    finish(*map(Path, sys.argv[1:]))
