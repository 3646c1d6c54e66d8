import importlib.metadata
import sys
import types

import pytest

from app.framework.per_node import NodeFilter
from app.framework.plugin_class import needs_of
from app.model.status import SUCCESS
from app.plugins.registry import GROUP, IN_TREE, RegistryError, capabilities, registry
from app.settings.defaults import IN_TREE_CAPABILITIES, PREPARED_AT
from tests.core.framework.worlds import World


class Good:
    NAME = "Good"

    def __init__(self, args, handle):
        self.args, self.handle = args, handle

    def filter(self, state, pod, view):
        return None


class Nameless:
    def filter(self, state, pod, view):
        return None


class Pointless:
    NAME = "Pointless"

    def __init__(self, args, handle):
        pass


class Choosy(Good):
    NAME = "Choosy"

    def __init__(self, args, handle, extra):
        pass


class Thief(Good):
    NAME = "NodeName"


class Twice(Good):
    pass


class Unfinished(NodeFilter):
    NAME = "Unfinished"


class Hoarder(Good):
    NAME = "Hoarder"

    def reserve(self, state, pod, node_name):
        return SUCCESS


class Sleeper(Good):
    NAME = "Sleeper"

    async def filter(self, state, pod, view):
        return None


class Hasty(Good):
    NAME = "Hasty"

    def pre_bind(self, state, pod, node_name, effects):
        return SUCCESS


@pytest.fixture
def module(monkeypatch):
    """A module that pretends to be installed."""
    fake = types.ModuleType("example_plugins")
    for cls in (
        Good,
        Nameless,
        Pointless,
        Choosy,
        Thief,
        Twice,
        Unfinished,
        Hoarder,
        Sleeper,
        Hasty,
    ):
        setattr(fake, cls.__name__, cls)
    fake.instance = Good(None, None)
    monkeypatch.setitem(sys.modules, "example_plugins", fake)
    return fake


class Distribution(importlib.metadata.Distribution):
    """One with only a name."""

    def __init__(self, name):
        self._name = name

    @property
    def metadata(self):
        return {"Name": self._name}

    def read_text(self, filename):
        return None

    def locate_file(self, path):
        raise NotImplementedError


def entry(value, distribution="example-dist"):
    point = importlib.metadata.EntryPoint("anything", value, GROUP)
    return point._for(Distribution(distribution))


def test_every_in_tree_plugin_is_known_by_its_own_name():
    assert all(name == plugin.NAME for name, plugin in IN_TREE.items())
    assert registry() == dict(IN_TREE)


def test_capabilities_are_those_of_kube_scheduler():
    ours = capabilities()
    assert ours
    assert ours == IN_TREE_CAPABILITIES


def test_settings_know_what_each_plugin_needs():
    needs = {
        name: {point: need.point for point, need in needs_of(kind).items()}
        for name, kind in IN_TREE.items()
    }
    assert {name: needed for name, needed in needs.items() if needed} == PREPARED_AT


def test_every_in_tree_plugin_can_be_made_without_arguments():
    handle = World(0, nodes=4).handle
    assert {name: plugin(None, handle).NAME for name, plugin in IN_TREE.items()} == {
        name: name for name in IN_TREE
    }


def test_third_party_plugins_are_added(module):
    plugins = registry([entry("example_plugins:Good")])
    assert plugins == {**IN_TREE, "Good": Good}
    assert capabilities(plugins)["Good"] == {"filter"}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("nowhere_to_be_found:Plugin", "cannot be imported: ModuleNotFoundError"),
        ("example_plugins:Absent", "cannot be imported: AttributeError"),
        ("example_plugins", "is a module, not a class"),
        ("example_plugins:instance", "is a Good, not a class"),
        ("example_plugins:Nameless", "the class has no NAME"),
        ("example_plugins:Pointless", "no method of any extension point"),
        ("example_plugins:Choosy", r"the constructor must take \(args, handle\)"),
        ("example_plugins:Thief", '"NodeName" is taken by aiokube-scheduler itself'),
        ("example_plugins:Unfinished", "the class lacks filter_node"),
        ("example_plugins:Hoarder", "the class lacks unreserve"),
        ("example_plugins:Sleeper", r"filter must not be a coroutine \(async def\)"),
        ("example_plugins:Hasty", r"pre_bind must be a coroutine \(async def\)"),
    ],
)
def test_bad_entries_are_refused_by_distribution(module, value, message):
    with pytest.raises(RegistryError, match=message) as caught:
        registry([entry(value)])
    assert str(caught.value).startswith(
        f'distribution example-dist, entry point "anything = {value}" of {GROUP}: '
    )


def test_all_bad_entries_are_reported_at_once(module):
    entries = [
        entry("example_plugins:Good", "first"),
        entry("example_plugins:Twice", "second"),
        entry("example_plugins:Nameless", "third"),
    ]
    with pytest.raises(RegistryError) as caught:
        registry(entries)
    lines = str(caught.value).splitlines()
    assert [line.partition(",")[0] for line in lines] == [
        "distribution second",
        "distribution third",
    ]
    assert '"Good" is taken by distribution first' in lines[0]


def test_an_entry_without_distribution():
    point = importlib.metadata.EntryPoint("x", "nowhere_to_be_found:Plugin", GROUP)
    with pytest.raises(RegistryError, match=r"^no distribution, entry point"):
        registry([point])
