"""Loads a configuration file: returns the settings, or raises an error with all mistakes.

The steps: documents with places (``yaml``) -> v1 (``legacy``) -> models (``structure``) -> rules
(``validation``) -> warnings (``advice``).
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path as File
from typing import Any, Final, NamedTuple

import msgspec

from app.framework.args import Profile
from app.model.features import RECORDED, Features, as_features
from app.model.gotext import Duration
from app.settings.advice import advise, advise_extension
from app.settings.args import ARGS
from app.settings.base import V1
from app.settings.defaults import IN_TREE_CAPABILITIES, Capabilities
from app.settings.extension import KIND as EXTENSION_KIND
from app.settings.extension import V1ALPHA1, AiokubeSchedulerConfiguration, ExtenderOptions
from app.settings.legacy import GROUP, VERSIONS, convert
from app.settings.models import Extender, KubeSchedulerConfiguration
from app.settings.plain import to_profile
from app.settings.plain_yaml import Document, YamlText
from app.settings.plugins import resolve
from app.settings.policy import KIND as POLICY
from app.settings.policy import convert_policy, is_policy
from app.settings.problems import ConfigurationError, Finding, Locator, Path, Problem, render_path
from app.settings.rewrite import mappings
from app.settings.structure import Decoded, decode
from app.settings.validation import (
    refuse_insecure_tls,
    trimmed,
    validate,
    validate_binders,
    validate_extension,
    validate_features,
)
from app.settings.yaml import read_documents

KIND: Final = "KubeSchedulerConfiguration"
_KINDS: Final = frozenset({KIND, *(f"{name}Args" for name in ARGS)})
"""Every kind that kube-scheduler knows."""
HOW_TO_START: Final = f"start it with apiVersion: {V1} and kind: {KIND}"
_SHOWN_TEXT: Final = 60
_SHORTEST: Final = 1_000_000
"""Nanoseconds of a time limit that may be meant: below a millisecond it is seconds that are meant."""


def is_extension(value: Mapping[str, Any]) -> bool:
    """Whether a document is, or is meant to be, an AiokubeSchedulerConfiguration."""
    group = str(value.get("apiVersion", "")).partition("/")[0]
    return value.get("kind") == EXTENSION_KIND or group == V1ALPHA1.partition("/")[0]


def is_readable(value: Mapping[str, Any]) -> bool:
    """Whether a document is to be checked beyond its apiVersion and kind."""
    version, kind = _text(value, "apiVersion"), _text(value, "kind")
    return kind in {KIND, ""} and version in {"", V1, *VERSIONS}


def _text(value: Mapping[str, Any], key: str) -> str:
    """The value as text; empty when absent."""
    found = value.get(key)
    return "" if found is None else str(found)


def wrong_type(value: Mapping[str, Any], text: str) -> Iterable[Finding]:
    """What kube-scheduler says about the apiVersion and kind, with what to write instead."""
    version, kind = _text(value, "apiVersion"), _text(value, "kind")
    if not version:
        said = f"Object 'apiVersion' is missing in '{_excerpt(text)}'"
        yield Finding(("apiVersion",), f"{said}; write apiVersion: {V1}")
    if not kind:
        said = f"Object 'Kind' is missing in '{_excerpt(text)}'"
        yield Finding(("kind",), f"{said}; write kind: {KIND}")
    if not version or not kind:
        return
    if version in {V1, *VERSIONS} and kind in _KINDS - {KIND}:
        said = f"couldn't decode as {KIND}, got {version}, Kind={kind}: "
        yield Finding(("kind",), f"{said}arguments belong into profiles[].pluginConfig[].args")
    elif version not in {V1, *VERSIONS} or kind != KIND:
        said = f'no kind "{kind}" is registered for version "{version}"'
        wrong = "kind" if version in {V1, *VERSIONS} else "apiVersion"
        yield Finding((wrong,), f"{said}; {_what_to_write(version, kind)}")


def _what_to_write(version: str, kind: str) -> str:
    if kind == POLICY:
        return f"scheduler policies are gone: list the extenders in a {KIND} of {V1}"
    if kind == "ConfigMap":
        return "the configuration is a text below its data: write that into a file of its own"
    read = ", ".join(VERSIONS.values())
    written = f"write apiVersion: {V1}, kind: {KIND}"
    return f"{written} ({read} are read too)" if version.startswith(GROUP) else written


def _excerpt(text: str) -> str:
    """The text on one line, cut to a length."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN_TEXT else f"{line[:_SHOWN_TEXT]}..."


def wrong_extension_type(value: Mapping[str, Any]) -> Iterable[Finding]:
    """What is wrong with the apiVersion and kind of the second document."""
    for name, wanted in (("apiVersion", V1ALPHA1), ("kind", EXTENSION_KIND)):
        if value.get(name) != wanted:
            said = f"of the second document must be {wanted}, not {value.get(name)}"
            yield Finding((name,), said)


# ---------------------------------------------------------------- before the models


def wrong_args_types(value: dict[str, Any]) -> Iterable[Finding]:
    """Findings about arguments whose kind is another plugin's; they are emptied, so that they are reported once."""
    for index, profile in mappings(value, "profiles"):
        for number, entry in mappings(profile, "pluginConfig"):
            name, args = _text(entry, "name"), entry.get("args")
            if not isinstance(args, dict) or name not in ARGS:
                continue
            said = _type_mismatch(name, args)
            if said:
                entry["args"] = {}
                path: Path = ("profiles", index, "pluginConfig", number)
                where = f"decoding .profiles[{index}].pluginConfig[{number}]"
                yield Finding((*path, "args"), f"{where}: {said}")


def _type_mismatch(name: str, args: Mapping[str, Any]) -> str | None:
    wanted = f"{name}Args"
    version, kind = _text(args, "apiVersion") or V1, _text(args, "kind") or wanted
    if (version, kind) == (V1, wanted):
        return None
    said = (
        f'decoding args for plugin {name}: no kind "{kind}" is registered for version "{version}"'
    )
    if version == V1 and kind in _KINDS:
        said = f"args for plugin {name} were not of type {wanted}.{GROUP}, got {kind}.{GROUP}"
    return f"{said}; write apiVersion: {V1} and kind: {wanted}, or neither"


def nanoseconds_as_durations(value: dict[str, Any]) -> Iterable[Finding]:
    """An extender's httpTimeout as a number, as scheduler policies had it: nanoseconds."""
    for index, extender in mappings(value, "extenders"):
        timeout = extender.get("httpTimeout")
        if isinstance(timeout, int) and not isinstance(timeout, bool) and abs(timeout) < 2**63:
            extender["httpTimeout"] = str(Duration(timeout))
            meant = f"{timeout}s" if abs(timeout) < _SHORTEST else f"{Duration(timeout)}"
            said = (
                f"{timeout} is read as nanoseconds: write {meant}; kube-scheduler refuses a number"
            )
            yield Finding(("extenders", index, "httpTimeout"), said)


class ConfiguredExtender(NamedTuple):
    """The parts of the two documents about one extender."""

    extender: Extender
    options: ExtenderOptions


class Settings(msgspec.Struct, frozen=True):
    """The two valid documents of a file."""

    configuration: KubeSchedulerConfiguration = msgspec.field(
        default_factory=KubeSchedulerConfiguration
    )
    """The document that kube-scheduler reads too."""
    extension: AiokubeSchedulerConfiguration = msgspec.field(
        default_factory=AiokubeSchedulerConfiguration
    )
    """The document of this scheduler only."""

    @property
    def extenders(self) -> tuple[ConfiguredExtender, ...]:
        """The extenders in the order of the file, each with its options."""
        options = {trimmed(entry.url_prefix): entry for entry in self.extension.extenders}
        return tuple(
            ConfiguredExtender(
                extender, options.get(trimmed(extender.url_prefix), ExtenderOptions())
            )
            for extender in self.configuration.extenders
        )

    def ignored_by_scheduler(self, profile: str) -> frozenset[str]:
        """The resources that some extender checks instead of NodeResourcesFit in the profile with this scheduler
        name.
        """
        return frozenset(
            resource.name
            for extender, options in self.extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
            and not options.shadow
            and (not options.profiles or profile in options.profiles)
        )


class Loaded(msgspec.Struct, frozen=True):
    """A valid configuration with its warnings."""

    settings: Settings
    warnings: tuple[Problem, ...] = ()
    source: str = "defaults"
    """The name of the file."""
    locator: Locator = msgspec.field(default_factory=Locator.nowhere)
    """Where the first document's fields stand in the file."""

    def to_plain(
        self, capabilities: Capabilities = IN_TREE_CAPABILITIES, features: Collection[str] = ()
    ) -> tuple[Profile, ...]:
        """The profiles for the framework, given what each registered plugin implements and which feature gates are on.

        Raises ConfigurationError with kube-scheduler's start-up errors if plugins are unknown, in the wrong place,
        listed twice, if a queue sort or bind plugin is missing, or a field needs a gate that is off.
        """
        config, chosen = self.settings.configuration, as_features(features)
        resolution = resolve(config.profiles, capabilities, chosen)
        findings = (*resolution.findings, *validate_features(config, chosen))
        if findings:
            problems = self.locator.problems(findings)
            raise ConfigurationError(problems, source=self.source, warnings=self.warnings)
        return tuple(
            to_profile(
                profile,
                config,
                resolved,
                ignored=self.settings.ignored_by_scheduler(profile.scheduler_name),
            )
            for profile, resolved in zip(config.profiles, resolution.profiles, strict=True)
        )


def load(
    source: File | str,
    *,
    name: str | None = None,
    capabilities: Capabilities | None = None,
    features: Features | None = RECORDED,
) -> Loaded:
    """Read a configuration from a file (``pathlib.Path``) or from its text (``str``).

    Raises ConfigurationError with all mistakes; those that ``Loaded.to_plain`` would report are among them if
    ``capabilities`` says what each registered plugin implements. ``features``: None if they are not known yet, so that
    only ``to_plain`` finds fields that need a gate.
    """
    if isinstance(source, str):
        return _load(source, name or "configuration", capabilities, features)
    name = name or str(source)
    try:
        content = source.read_bytes()
    except OSError as error:
        said = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError([Problem(0, 0, "", said)], source=name) from error
    return _load(decode_text(content, name), name, capabilities, features)


def decode_text(content: bytes, name: str) -> str:
    """The text of a file. Raises ConfigurationError."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        said = f"is not UTF-8: {error.reason} at byte {error.start}"
        raise ConfigurationError([Problem(0, 0, "", said)], source=name) from error


def _load(
    text: str, name: str, capabilities: Capabilities | None, features: Features | None
) -> Loaded:
    return _Reader(text, capabilities, features).read(name)


class Converted(msgspec.Struct, frozen=True):
    """A file of an older version as v1."""

    loaded: Loaded
    """The settings of the file; the warnings name what changed, and what could not be carried over."""
    documents: tuple[dict[str, Any], ...]
    """The v1 file, without the defaults that are filled in when it is read."""


def convert_text(text: str, name: str, capabilities: Capabilities | None) -> Converted:
    """Converts a scheduler policy, or a configuration of v1beta1 to v1beta3, given as text, to v1.

    Raises ConfigurationError with all mistakes, as ``load`` does.
    """
    reader = _Reader(text, capabilities, RECORDED, policies=True)
    loaded = reader.read(name)
    return Converted(loaded, tuple(reader.documents))


class _Reader:
    """Reads one text; collects mistakes and warnings of all stages."""

    def __init__(
        self,
        text: str,
        capabilities: Capabilities | None,
        features: Features | None,
        *,
        policies: bool = False,
    ) -> None:
        """``policies``: scheduler policies are read too."""
        self._text = text
        self._capabilities = capabilities
        self._features = features
        self._policies = policies
        #: What was read, as v1.
        self.documents: list[dict[str, Any]] = []
        self._reading: YamlText = read_documents(text)
        self.problems: list[Problem] = list(self._reading.problems)
        self.warnings: list[Problem] = []

    def read(self, name: str) -> Loaded:
        """The settings. Raises ConfigurationError with all mistakes."""
        loaded = self._read(name)
        if loaded is None or self.problems:
            raise ConfigurationError(self.problems, source=name, warnings=self.warnings)
        return loaded

    def _read(self, name: str) -> Loaded | None:
        """The settings, or None without a usable first document."""
        main, other = self._sort_documents()
        if main is None:
            return None
        value, locator = self._prepare(main)
        config = decode(KubeSchedulerConfiguration, value, locator)
        self._add(locator, config.findings)
        self._add(locator, config.genuine(validate(config.model)))
        if self._features is not None:
            mistakes = validate_features(config.model, self._features)
            self._add(locator, config.genuine(mistakes))
        if self._capabilities is not None:
            self._add(locator, self._about_plugins(config, locator, self._capabilities))
        extension = self._extension(other, config)
        if extension.refuse_insecure_tls:
            self._add(locator, config.genuine(refuse_insecure_tls(config.model)))
        settings = Settings(config.model, extension)
        self._add(locator, config.genuine(validate_binders(settings.extenders)))
        self.warnings += locator.problems(
            config.genuine(advise(config.model, extension, settings.ignored_by_scheduler))
        )
        warnings = tuple(sorted(set(self.warnings)))
        return Loaded(settings, warnings, name, locator)

    def _add(self, locator: Locator, findings: Iterable[Finding]) -> None:
        self.problems += locator.problems(findings)

    # ------------------------------------------------------------ which document is what

    def _sort_documents(self) -> tuple[Document | None, Document | None]:
        """The two documents, if present; any other document is a mistake."""
        mains: list[Document] = []
        others: list[Document] = []
        for document in self._reading.documents:
            value, locator = document.value, Locator(document.marks)
            if not isinstance(value, dict):
                said = "a configuration is a mapping that starts with apiVersion and kind"
                self._add(locator, [Finding((), said)])
            elif is_extension(value):
                others.append(document)
                self._add(locator, wrong_extension_type(value))
            elif self._policies and is_policy(value):
                mains.append(document)
            else:
                mistakes = list(wrong_type(value, self._text))
                self._add(locator, mistakes)
                if is_readable(value):
                    mains.append(document)
        self._only_one(mains, KIND)
        self._only_one(others, EXTENSION_KIND)
        if not mains and not self.problems:
            self.problems.append(Problem(0, 0, "", f"the file holds no {KIND}; {HOW_TO_START}"))
        return (mains[0] if mains else None), (others[0] if others else None)

    def _only_one(self, documents: list[Document], kind: str) -> None:
        for document in documents[1:]:
            said = f"the file holds a second {kind}; merge it into the first"
            self._add(Locator(document.marks), [Finding((), said)])

    # ------------------------------------------------------------ the documents

    def _prepare(self, document: Document) -> tuple[dict[str, Any], Locator]:
        """The first document as v1, its arguments' types checked, its durations in Go's notation."""
        is_old = self._policies and is_policy(document.value)
        converted = (convert_policy if is_old else convert)(document.value)
        in_file = Locator(document.marks)
        self._add(in_file, converted.mistakes)
        self.warnings += in_file.problems(converted.warnings)
        locator = Locator(document.marks, converted.origins, converted.causes)
        self._add(locator, wrong_args_types(converted.value))
        self.warnings += locator.problems(nanoseconds_as_durations(converted.value))
        self.documents.append(converted.value)
        return converted.value, locator

    def _about_plugins(
        self, config: Decoded[KubeSchedulerConfiguration], locator: Locator, known: Capabilities
    ) -> Iterator[Finding]:
        """Mistakes of the plugins, except those that follow from mistakes already reported."""
        cut = (path[2:3] for path in config.lost if path[:1] in {(), ("profiles",)})
        if any(part in {(), ("plugins",)} for part in cut):
            return
        reported = {problem.path for problem in self.problems}
        for finding in resolve(config.model.profiles, known).findings:
            if render_path(locator.origin(finding.path)) not in reported:
                yield finding

    def _extension(
        self, document: Document | None, config: Decoded[KubeSchedulerConfiguration]
    ) -> AiokubeSchedulerConfiguration:
        if document is None:
            return AiokubeSchedulerConfiguration()
        self.documents.append(document.value)
        locator = Locator(document.marks)
        extension = decode(AiokubeSchedulerConfiguration, document.value, locator)
        self._add(locator, extension.findings)
        if not any(path[0] == "extenders" for path in config.lost):
            mistakes = validate_extension(extension.model, config.model)
            self._add(locator, extension.genuine(mistakes))
            warnings = advise_extension(extension.model, config.model)
            self.warnings += locator.problems(extension.genuine(warnings))
        return extension.model
