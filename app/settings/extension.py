"""AiokubeSchedulerConfiguration: options that kube-scheduler's schema does not have.

It is a second document of the same file, so that the first one stays valid for kube-scheduler. All fields are optional.
"""

from typing import Final

import msgspec

from app.model.gotext import Duration
from app.model.objects import Int32
from app.settings.args import LabelSelector
from app.settings.base import Model, Seconds

V1ALPHA1: Final = "aiokube-scheduler.io/v1alpha1"
KIND: Final = "AiokubeSchedulerConfiguration"


class BreakerOptions(Model, frozen=True):
    """When to stop calling an extender that does not answer."""

    failures: Int32 = 3
    """Consecutive calls without an answer that open the breaker; 0 for no breaker. Default: 3."""
    open_seconds: Seconds = Duration.of(5)
    """Pause before a call is tried again; doubled after each failure. Default: 5s."""
    max_open_seconds: Seconds = Duration.of(60)
    """The longest pause. Default: 60s."""


class DryRunOptions(Model, frozen=True):
    """How an extender is asked without reserving anything. What is not named is not called."""

    filter_verb: str = ""
    """Path that filters and reserves nothing; the filterVerb itself if that reserves nothing. Default: none."""
    prioritize_verb: str = ""
    """Path that prioritizes and reserves nothing. Default: none."""
    preempt_verb: str = ""
    """Path that is asked about victims and reserves nothing. Default: none."""
    node_cache_capable: bool | None = None
    """True: names are sent; false: whole nodes. Default: as otherwise."""

    @property
    def verbs(self) -> dict[str, str]:
        """The paths by the name of their field, without those that are not given."""
        given = {
            "filterVerb": self.filter_verb,
            "prioritizeVerb": self.prioritize_verb,
            "preemptVerb": self.preempt_verb,
        }
        return {field: path for field, path in given.items() if path}


class ExtenderOptions(Model, frozen=True):
    """Additions to the extenders of one urlPrefix."""

    url_prefix: str = ""
    """The urlPrefix of the extender in the first document; required."""
    serial: bool | None = None
    """True: decide about one pod after the other where it filters or prioritizes, and never have two calls in flight.
    False: let calls overlap. Default: one pod after the other while it leaves just one of the nodes it is shown."""
    parallelism: Int32 = 0
    """About how many pods its server is called at the same time, bindings included. Default: 0, as many as it is found
    to take.
    """
    bearer_token_file: str = ""
    """Path of a file whose content is sent as a bearer token; read again when it changes. Default: none."""
    breaker: BreakerOptions = BreakerOptions()
    """When to stop calling it."""
    pod_selector: LabelSelector = LabelSelector()
    """Call it only about pods with matching labels. Default: all."""
    namespace_selector: LabelSelector = LabelSelector()
    """Call it only about pods in namespaces with matching labels. Default: all."""
    profiles: tuple[str, ...] = ()
    """Call it only about pods of the profiles with these scheduler names. Default: all."""
    release_verb: str = ""
    """Called when a placement that it may have heard of is given up. Default: not called."""
    group_verb: str = ""
    """Called once for all waiting pods of a group, instead of filter and prioritize for each. Default: not called."""
    answers_for_template: bool = False
    """Use what it answers about a pod for the pods of the same group with an equal spec, and do not call it about
    those. Not for an extender that reserves. Default: false."""
    shadow: bool = False
    """Call it in the background and compare its answers with the decisions, without obeying them. Default: false."""
    dry_run: DryRunOptions = DryRunOptions()
    """How what-if questions, simulate and shadow ask it. Default: not at all."""

    @property
    def selects(self) -> bool:
        """Whether it has a podSelector or a namespaceSelector that may leave out pods."""
        return LabelSelector() != self.pod_selector or LabelSelector() != self.namespace_selector


class RequeueEndpoint(Model, frozen=True):
    """The endpoint with which an extender makes pods active that it rejected."""

    enabled: bool = False
    """Serve it to clients that the API server authorizes. Default: false."""


class ExtenderBodies(Model, frozen=True):
    """Which bodies of calls to extenders are kept in memory, for ``explain --bodies``."""

    calls: Int32 = 0
    """The last calls whose bodies are kept; 0 for none. Default: 0."""
    max_bytes: Int32 = 16 * 1024
    """The first bytes of each body that are kept. Default: 16384."""


class AiokubeSchedulerConfiguration(Model, frozen=True):
    """The second document."""

    api_version: str = V1ALPHA1
    """``aiokube-scheduler.io/v1alpha1``; required in a file."""
    kind: str = KIND
    """``AiokubeSchedulerConfiguration``; required in a file."""
    max_bindings_in_flight: Int32 = 32
    """Binding requests to the API server at the same time. Default: 32."""
    refuse_insecure_tls: bool = msgspec.field(default=False, name="refuseInsecureTLS")
    """Reject extenders whose certificate would not be verified, instead of warning. Default: false."""
    requeue_endpoint: RequeueEndpoint = RequeueEndpoint()
    """The endpoint with which an extender makes pods active that it rejected."""
    extender_bodies: ExtenderBodies = ExtenderBodies()
    """Which bodies of calls to extenders are kept."""
    extenders: tuple[ExtenderOptions, ...] = ()
    """Additions to extenders, by urlPrefix."""
