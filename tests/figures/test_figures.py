"""The figures of tests/figures/bounds.json do not grow, and are what they say."""

import pytest

from tests.figures.bounds import grown, read
from tests.figures.counts import Module, circles, counts, modules
from tests.figures.ways import WAYS, follow


def test_no_count_grows():
    figures = {name: count.figure for name, count in counts(modules()).items()}
    assert grown(figures, read()) == []


@pytest.mark.parametrize("way", WAYS)
def test_no_way_of_a_pod_grows(way):
    figures = {f"{way}: {what}": figure for what, figure in follow(way).counts().items()}
    assert grown(figures, read()) == []


def test_every_bound_has_its_figure():
    counted = counts([])
    assert all(name in counted or name.partition(":")[0] in WAYS for name in read())


def test_growth_is_reported():
    assert grown({"lines": 2, "names": 1}, {"lines": 1, "names": 1})[0].startswith("lines: 2 is")
    assert len(grown({"new": 0}, {})) == 1


MODULE = '''"""What it is,
in two lines."""

import app.model.b  # a comment

NAME = """a text
of two lines"""


class Public:
    """A docstring."""

    #: A comment.
    field: int = getattr(NAME, "field", 1)


class _Private: ...


Alias = int
lower = 1
'''


def test_lines_of_code_are_those_without_blanks_comments_and_docstrings():
    assert Module("state/a.py", MODULE).code_lines == 8


def test_public_names_are_classes_and_aliases():
    module = Module("state/a.py", MODULE)
    assert module.public_classes() == ["Public"]
    assert module.public_names() == {"Public", "Alias"}
    assert module.examinations() == 1


def test_counts_name_their_places():
    found = counts([Module("state/a.py", MODULE), Module("plugins/b.py", "class Public: ...")])
    assert found["public names that exist twice"] == (1, ("Public: state/a.py plugins/b.py",))
    assert found["code lines of app"].places == ("state 8", "plugins 1")


def test_circles_are_found_in_functions_and_for_type_checkers_too():
    first = "if TYPE_CHECKING:\n    from app.model.b import B\n"
    second = "def f():\n    from app.model import c\n"
    third = "from app.model.a import A\n"
    files = {"a": first, "b": second, "c": third, "d": "import app.model.a\n"}
    made = [Module(f"model/{name}.py", text) for name, text in files.items()]
    assert circles(made) == [["model/a.py", "model/b.py", "model/c.py"]]
    assert circles(made[1:]) == []


def test_a_package_that_imports_its_own_module_is_no_circle():
    package = Module("model/x/__init__.py", "from app.model.x.y import Y\n")
    module = Module("model/x/y.py", "from app.model.x import z\n")
    assert circles([package, module, Module("model/x/z.py", "")]) == []
