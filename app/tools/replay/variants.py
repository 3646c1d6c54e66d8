"""Lets several configurations live through a recording, one process each, and compares them."""

import gc
import multiprocessing
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Final

import msgspec

from app.model.features import Features, known_in
from app.plugins import registry
from app.runtime.distributions import entry_points
from app.scheduler.trace import Header
from app.settings.load import Loaded, load
from app.tools.replay.course import Comparison, Lived, compare, recorded_course
from app.tools.replay.model import Variant, live_through
from app.tools.replay.story import read_story
from app.tools.simulate.configuration import without_extenders

#: What the courses of the recorded configuration are called.
RECORDED: Final = "as recorded"
#: As in a scheduler's process while its caches are filled.
_GC: Final = (2_000_000, 20, 50)


class VariantChoice(msgspec.Struct, frozen=True):
    """What is asked for; a process can be sent it."""

    name: str
    #: None: the recorded one.
    config: Path | None = None
    #: None: the recorded one.
    version: str | None = None
    gates: Mapping[str, bool] = {}
    extenders: str = "cassette"
    #: A folder with further distributions of plugins.
    plugins: Path | None = None


def variant_of(choice: VariantChoice, header: Header) -> tuple[Variant, Mapping[str, type]]:
    """The variant, and the plugins that are there. Raises ConfigurationError, RegistryError, FeaturesError."""
    if choice.plugins is not None and str(choice.plugins) not in sys.path:
        sys.path.insert(0, str(choice.plugins))
    classes = registry.registry(entry_points(group=registry.GROUP))
    if choice.version is None:
        features = Features.of(header.rules, dict.fromkeys(header.gates, True) | dict(choice.gates))
    else:
        gates = known_in(choice.version, dict.fromkeys(header.gates, True))
        features = Features.of(choice.version, gates | dict(choice.gates))
    if choice.config is None:
        loaded = load(header.configuration, name="the recorded configuration")
    else:
        loaded = load(choice.config, features=features)
    if choice.extenders == "none":
        loaded = Loaded(without_extenders(loaded.settings))
    return Variant(choice.name, loaded, features, choice.extenders), classes


def run_choice(
    trace: Path, choice: VariantChoice, look: Callable[[float], None] = lambda _share: None
) -> Lived:
    """What a choice makes of the recording. Raises TraceError and what ``variant_of`` raises."""
    gc.set_threshold(*_GC)
    story = read_story(trace)
    variant, classes = variant_of(choice, story.header)
    return live_through(trace, story, variant, classes, look)


def run_all(
    trace: Path, choices: Sequence[VariantChoice], *, jobs: int, look: Callable[[str, float], None]
) -> Comparison:
    """The recorded configuration and all choices, ``jobs`` at a time. Raises as ``run_choice``."""
    story = read_story(trace)
    asked = [VariantChoice(RECORDED), *choices]
    for choice in asked:
        variant_of(
            msgspec.structs.replace(choice, plugins=None) if jobs > 1 else choice, story.header
        )
    outcomes: list[Lived]
    if jobs == 1:
        outcomes = []
        for choice in asked:

            def show(share: float, name: str = choice.name) -> None:
                look(name, share)

            outcomes.append(run_choice(trace, choice, show))
    else:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(jobs, mp_context=context) as pool:
            running = [pool.submit(run_choice, trace, choice) for choice in asked]
            outcomes = []
            for choice, each in zip(asked, running, strict=True):
                look(choice.name, 0.0)
                outcomes.append(each.result())
    names = {uid: pod.name for uid, pod in story.pods.items()}
    return Comparison(
        recorded=recorded_course(story).course,
        courses=[outcome.course for outcome in outcomes],
        differences=compare(names, outcomes),
        incomplete=story.incomplete,
    )
