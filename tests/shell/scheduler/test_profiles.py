"""Plugins that refuse their arguments: named with profile, place and line, all at once."""

from app.framework.api import NodeFilter, PluginArgs
from app.plugins.registry import IN_TREE
from app.scheduler.profiles import plugin_problems
from app.settings.load import load


class LimitArgs(PluginArgs):
    limit: int


class Limit(NodeFilter):
    NAME = "Limit"

    def __init__(self, args, handle):
        self.limit = LimitArgs.read(args).limit

    def filter_node(self, state, pod, info):
        return None


CONFIGURATION = """\
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: first
  plugins:
    multiPoint:
      enabled:
      - name: Limit
  pluginConfig:
  - name: Limit
    args:
      limit: {limit}
- schedulerName: second
  plugins:
    multiPoint:
      enabled:
      - name: Limit
"""

SAID = (
    'initializing profiles: creating profile for scheduler name {}: initializing plugin "Limit": {}'
)


def problems(text):
    return plugin_problems(load(text), {**IN_TREE, "Limit": Limit})


def test_the_arguments_and_where_they_stand():
    text = CONFIGURATION.format(limit="many")
    first, second = problems(text)
    assert (first.line, first.path) == (11, "profiles[0].pluginConfig[0].args")
    assert first.message == SAID.format("first", "args.limit: Expected `int`, got `str`")
    assert (second.line, second.path) == (14, "profiles[1].plugins")
    assert second.message == SAID.format("second", "args: Object missing required field `limit`")


def test_nothing_to_say():
    text, _, _ = CONFIGURATION.format(limit=3).partition("- schedulerName: second")
    assert problems(text) == ()
