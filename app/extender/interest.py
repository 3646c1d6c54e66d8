"""Which pods concern an extender (docs/spec/extenders.md#interest, and the selectors of the second document)."""

from collections.abc import Callable
from typing import Final
from weakref import WeakKeyDictionary

from app.extender.config import ExtenderConfig
from app.model.pod import Pod, PodTemplate
from app.model.selectors import EVERYTHING, Labels

#: The labels of a namespace, None for one that is not known.
LabelsOf = Callable[[str], Labels | None]


class Interest:
    """Whether pods concern one extender."""

    def __init__(self, config: ExtenderConfig, labels_of: LabelsOf) -> None:
        """``labels_of`` a namespace is asked if the configuration has a namespace selector."""
        self._managed: Final = frozenset(r.name for r in config.managed_resources)
        self._profiles: Final = config.profiles
        self._pods: Final = config.pod_selector
        self._namespaces: Final = config.namespace_selector
        self._labels_of: Final = labels_of
        #: Whether every pod concerns the extender.
        self.everything: Final = (
            not (self._managed or self._profiles)
            and self._pods is EVERYTHING
            and self._namespaces is EVERYTHING
        )
        #: Whether a template's profile and resources concern the extender.
        self._templates: Final[WeakKeyDictionary[PodTemplate, bool]] = WeakKeyDictionary()

    def concerns(self, pod: Pod) -> bool:
        """Whether this pod concerns the extender.

        A pod in a namespace that is not known yet matches every namespace selector: not asking may be worse.
        """
        if not self.may_concern(pod.template, pod.labels):
            return False
        if self._namespaces is EVERYTHING:
            return True
        labels = self._labels_of(pod.namespace)
        return labels is None or self._namespaces.matches(labels)

    def may_concern(self, template: PodTemplate, labels: Labels) -> bool:
        """Whether such pods concern the extender in some namespaces at least."""
        if self._pods is not EVERYTHING and not self._pods.matches(labels):
            return False
        if not (self._managed or self._profiles):
            return True
        concerns = self._templates.get(template)
        if concerns is None:
            concerns = self._templates[template] = self._selects(template)
        return concerns

    def _selects(self, template: PodTemplate) -> bool:
        if self._profiles and template.spec.scheduler_name not in self._profiles:
            return False
        return not self._managed or asks_for(template, self._managed)


def asks_for(template: PodTemplate, resources: frozenset[str]) -> bool:
    """Whether a container requests or limits one of these resources (docs/spec/extenders.md#interest)."""
    spec = template.spec
    return any(
        name in resources
        for container in (*spec.containers, *(spec.init_containers or ()))
        if container.resources is not None
        for amounts in (container.resources.requests, container.resources.limits)
        for name in amounts or ()
    )
