"""docs/plugins.md: every block of code is run, every quotation is true.

The ``console`` blocks are run by tests/whole/test_plugin_package.py.
"""

import runpy

import pytest

from app.framework import api
from app.framework.interface import POINT_METHODS
from app.plugins.registry import IN_TREE, capabilities
from app.settings.load import load
from tests.markdown import ROOT, blocks

GUIDE = ROOT / "docs" / "plugins.md"
EXAMPLE = GUIDE.parent / "examples" / "plugin" / "example_plugins"


@pytest.fixture(scope="module")
def guide() -> dict[str, object]:
    """What a reader has who has typed in all of the Python."""
    namespace: dict[str, object] = {"__name__": "guide"}
    for module, name in (("maintenance", "Maintenance"), ("cheap_nodes", "CheapNodes")):
        namespace[name] = runpy.run_path(str(EXAMPLE / f"{module}.py"))[name]
    for block in blocks(GUIDE):
        if block.language == "python" and not block.origin:
            padded = "\n" * block.line + block.text
            exec(compile(padded, str(GUIDE), "exec"), namespace)
    return namespace


def test_the_python_runs_and_its_tests_pass(guide):
    tests = [value for name, value in guide.items() if name.startswith("test_")]
    assert len(tests) >= 2
    for test in tests:
        test()


def test_every_block_is_of_a_kind_that_is_run():
    kinds = {block.language for block in blocks(GUIDE)}
    assert kinds == {"python", "toml", "yaml", "console"}


def test_quotations_are_true():
    quoted = [block for block in blocks(GUIDE) if block.origin]
    assert len(quoted) >= 5
    for block in quoted:
        assert block.text in (GUIDE.parent / block.origin).read_text(encoding="utf-8"), block
    assert all(block.origin for block in blocks(GUIDE) if block.language == "toml")


def test_the_configurations_mean_what_is_said(guide):
    classes = {**IN_TREE, "SlowStart": guide["SlowStart"]}
    (text,) = [b.text for b in blocks(GUIDE) if b.language == "yaml" and not b.origin]
    (profile,) = load(text).to_plain(capabilities(classes))
    assert profile.points["bind"] == ("SlowStart", "DefaultBinder")


def test_every_extension_point_is_in_the_table():
    text = GUIDE.read_text(encoding="utf-8")
    for point, method in POINT_METHODS.items():
        assert f"| `{point}` | `" in text
        assert f"{method}(" in text


def test_the_one_import_has_what_it_says():
    assert sorted(api.__all__) == sorted(set(api.__all__))
    assert all(hasattr(api, name) for name in api.__all__)
