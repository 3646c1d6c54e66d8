"""The files in config/, and the documentation of every field."""

import ast
import inspect
import itertools
import textwrap
from pathlib import Path

import pytest
import yaml

from app.settings import args, extension, models
from app.settings.base import Model
from app.settings.dump import to_dict
from app.settings.load import load
from tests.core.settings.kit import loaded

ROOT = Path(__file__).parents[3]
SAMPLES = sorted((ROOT / "config").glob("*.yaml"))
EXPECTED_WARNINGS = {"kep-1819-sample.yaml": 3}


def test_there_are_samples():
    assert {path.name for path in SAMPLES} >= {
        "default.yaml",
        "extender.yaml",
        "binpacking.yaml",
        "two-profiles.yaml",
        "second-scheduler.yaml",
        "kep-1819-sample.yaml",
    }


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.name)
def test_a_sample_loads_and_could_be_started(path):
    sample = load(path)
    assert sample.to_plain()
    assert len(sample.warnings) == EXPECTED_WARNINGS.get(path.name, 0)


def test_the_default_sample_is_the_default():
    sample = load(ROOT / "config" / "default.yaml")
    assert to_dict(sample.settings) == to_dict(loaded().settings)
    assert sample.settings.extension == loaded().settings.extension
    assert sample.to_plain() == loaded().to_plain()


def test_the_default_sample_names_every_field_that_has_a_default():
    documents = list(yaml.safe_load_all((ROOT / "config" / "default.yaml").read_text()))
    first = models.KubeSchedulerConfiguration.__struct_encode_fields__
    second = extension.AiokubeSchedulerConfiguration.__struct_encode_fields__
    assert documents[0].keys() == set(first) - {"extenders"}
    assert documents[1].keys() == set(second) - {"extenders"}


def test_the_samples_do_what_they_say():
    profiles = load(ROOT / "config" / "two-profiles.yaml").to_plain()
    assert [profile.scheduler_name for profile in profiles] == ["default-scheduler", "batch"]
    assert "PodTopologySpread" not in profiles[1].points["filter"]
    (gpu, options), (other, _) = load(ROOT / "config" / "extender.yaml").settings.extenders
    assert (options.serial, other.ignorable) == (True, True)
    assert gpu.bind_verb == "bind"
    (packing,) = load(ROOT / "config" / "binpacking.yaml").to_plain()
    assert packing.score_weights["NodeResourcesFit"] == 5
    assert "NodeResourcesBalancedAllocation" not in packing.score_weights
    second = load(ROOT / "config" / "second-scheduler.yaml").settings.configuration
    assert second.leader_election.resource_name == "aiokube-scheduler"


def every_model():
    for module in (models, args, extension):
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Model) and value is not Model:
                yield value


def documented_fields(model):
    """Names of the annotated fields of a class that are followed by a docstring."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    pairs = itertools.pairwise(definition.body)
    return {
        field.target.id
        for field, after in pairs
        if isinstance(field, ast.AnnAssign)
        and isinstance(after, ast.Expr)
        and isinstance(after.value, ast.Constant)
        and after.value.value.strip()
    }


@pytest.mark.parametrize("model", sorted(set(every_model()), key=lambda model: model.__name__))
def test_every_field_is_documented(model):
    own = set(inspect.get_annotations(model)) & set(model.__struct_fields__)
    assert own <= documented_fields(model)
