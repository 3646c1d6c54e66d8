"""kube-scheduler asks a scheduler of ours as an extender: the plugins of ours decide too, and ours writes nothing."""

import json
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import yaml

from app.tools.subprocesses import reserved_port
from tests.whole.harness import Process, pod, wait_for
from tests.whole.real import NEEDS_REAL, RealApiServer

pytestmark = [pytest.mark.whole, *NEEDS_REAL]

#: What only our scheduler has: its pods belong into one zone.
ONE_ZONE = {
    "requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-0"]}
                ]
            }
        ]
    }
}


@pytest.mark.parametrize("by_name", [True, False])
def test_kube_scheduler_asks_ours(tmp_path: Path, by_name: bool) -> None:
    with RealApiServer(tmp_path).running() as api, reserved_port() as port:
        api.create_nodes(6, zones=3)
        file = tmp_path / "ours.yaml"
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "clientConnection": {"kubeconfig": str(api.kubeconfig)},
            "leaderElection": {"leaderElect": False},
            "profiles": [
                {
                    "schedulerName": "ours",
                    "pluginConfig": [{"name": "NodeAffinity", "args": {"addedAffinity": ONE_ZONE}}],
                }
            ],
        }
        file.write_text(yaml.safe_dump(document))
        arguments = ["app", "run", f"--config={file}", f"--secure-port={port}", "--insecure-http"]
        allowed = "--authorization-always-allow-paths=/whatif/filter,/readyz"
        ours = Process([*arguments, allowed, "--bind-address=127.0.0.1"], tmp_path / "ours.log")
        extender = {
            "urlPrefix": f"http://127.0.0.1:{port}/whatif",
            "filterVerb": "filter",
            "nodeCacheCapable": by_name,
        }
        try:
            wait_for("our scheduler", lambda: _answers(port))
            with api.kube_scheduler(extenders=[extender]):
                for number in range(8):
                    body = pod(f"p{number}")
                    api.call("POST", "/api/v1/namespaces/default/pods", body)
                api.call("POST", "/api/v1/namespaces/default/pods", pod("large", cpu="3"))
                wait_for("all bound", lambda: api.all_bound(9), 60)
                nodes = {
                    n["metadata"]["name"]: n for n in api.call("GET", "/api/v1/nodes")["items"]
                }
                zones = {
                    nodes[each["spec"]["nodeName"]]["metadata"]["labels"][
                        "topology.kubernetes.io/zone"
                    ]
                    for each in api.pods().values()
                }
                assert zones == {"zone-0"}
                api.call("POST", "/api/v1/namespaces/default/pods", pod("huge", cpu="3950m"))
                event = wait_for(
                    "why not",
                    lambda: [
                        e["note"]
                        for e in api.events("FailedScheduling")
                        if e["regarding"]["name"] == "huge"
                    ],
                )
                assert "node(s) didn't match scheduler-enforced node affinity" in event[0]
            assert ours.stop() == 0, ours.output()
            assert "Traceback" not in ours.output()
        finally:
            ours.kill()
        written = [
            event
            for event in map(json.loads, api.audit_log.read_text().splitlines())
            if "aiokube" in event.get("userAgent", "")
            and event["verb"] not in {"get", "list", "watch"}
            and "reviews" not in event["requestURI"]
        ]
        assert written == []


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
