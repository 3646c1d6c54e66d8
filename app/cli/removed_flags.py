"""Flags that kube-scheduler had once, and that manifests still carry: refused, as by kube-scheduler, but with the way out."""

from collections.abc import Mapping
from typing import Final

_POLICY: Final = (
    "policies have become profiles and extenders of a KubeSchedulerConfiguration; name its file with --config "
    "(aiokube-scheduler check-config checks it)"
)
_LOG: Final = "leave it out: the log goes to standard error"

REMOVED: Final[Mapping[str, str]] = {
    "--address": "use --bind-address",
    "--port": "leave it out: everything is served with TLS, at --secure-port",
    "--scheduler-name": "set schedulerName of a profile in the file of --config",
    "--algorithm-provider": _POLICY,
    "--policy-config-file": _POLICY,
    "--policy-configmap": _POLICY,
    "--policy-configmap-namespace": _POLICY,
    "--use-legacy-policy-config": _POLICY,
    "--hard-pod-affinity-symmetric-weight": (
        "set hardPodAffinityWeight in the arguments of InterPodAffinity, in the file of --config"
    ),
    "--lock-object-name": "use --leader-elect-resource-name",
    "--lock-object-namespace": "use --leader-elect-resource-namespace",
    "--experimental-logging-sanitization": "leave it out: secrets are never logged",
    "--add-dir-header": _LOG,
    "--alsologtostderr": _LOG,
    "--log-backtrace-at": _LOG,
    "--log-dir": _LOG,
    "--log-file": _LOG,
    "--log-file-max-size": _LOG,
    "--logtostderr": _LOG,
    "--one-output": _LOG,
    "--skip-headers": _LOG,
    "--skip-log-headers": _LOG,
    "--stderrthreshold": _LOG,
}
"""Flag -> what to do instead."""
