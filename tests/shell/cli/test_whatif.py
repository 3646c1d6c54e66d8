"""The commands that ask what would happen: on a dump, so that no scheduler runs; and what they send to one that
does."""

import json

import pytest
import yaml
from click.testing import CliRunner

from app.cli import whatif
from app.cli.root import main
from app.tools.scheduler_client import Link, NotAnswered

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a", "labels": {"zone": "z1"}},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"}}}  # fmt: skip
OWNER = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "name": "its",
    "uid": "its",
    "controller": True,
}


def pod(name, cpu, **spec):
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container]} | spec}  # fmt: skip


@pytest.fixture
def files(tmp_path):
    running = pod("there", "3", nodeName="a")
    running["metadata"]["ownerReferences"] = [OWNER]
    other = NODE | {"metadata": {"name": "b", "labels": {"zone": "z2"}}}
    urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
              "metadata": {"name": "urgent"}, "value": 10}  # fmt: skip
    dump = {"apiVersion": "v1", "kind": "List", "items": [NODE, other, running, urgent]}
    (tmp_path / "dump.yaml").write_text(yaml.safe_dump(dump))
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod("new", "2")))
    (tmp_path / "urgent.yaml").write_text(
        yaml.safe_dump(pod("new", "4", priorityClassName="urgent"))
    )
    (tmp_path / "shape.yaml").write_text(yaml.safe_dump(NODE | {"metadata": {"name": "big"}}))
    return tmp_path


def run(files, *words, status=0, dump=True):
    given = [word.replace("@", f"{files}/") for word in words]
    given += ["--dump", f"{files}/dump.yaml"] if dump else []
    found = CliRunner().invoke(main, [*given, "--kubeconfig", ""])
    assert found.exit_code == status, found.output
    return found.output


def test_the_questions_as_tables(files):
    text = run(files, "fits", "-f", "@pod.yaml", "--copies", "2")
    assert "default/new " in text
    assert "2 pods get a node, 0 stay pending." in text
    text = run(files, "fits", "-f", "@pod.yaml", "--copies", "3", status=1)
    assert "Unschedulable: 0/2 nodes are available" in text
    assert "2 pods get a node, 1 stay pending." in text
    text = run(files, "fits", "-f", "@urgent.yaml", "--copies", "2")
    assert "default/there" in text
    text = run(files, "how-many", "-f", "@pod.yaml")
    assert "Pod default/new       2" in text
    assert "1 pods get a node, 0 stay pending." in run(files, "drain", "a")
    assert "1 pods get a node, 0 stay pending." in run(files, "lose", "zone=z1")
    text = run(files, "needs", "-f", "@pod.yaml", "--copies", "5", "--like", "b")
    assert "2 more nodes of this shape are enough." in text
    text = run(files, "needs", "-f", "@pod.yaml", "--copies", "5", "--node", "@shape.yaml")
    assert "2 more nodes of this shape are enough." in text


def test_the_answer_as_json(files):
    answer = json.loads(run(files, "fits", "-f", "@pod.yaml", "-o", "json"))
    assert [(row["name"], row["node"]) for row in answer["pods"]] == [("new", "b")]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("drain", "absent"), "node 'absent' is not found"),
        (("fits", "-f", "@absent.yaml"), "absent.yaml"),
        (("fits",), "--filename"),
        (("needs", "-f", "@pod.yaml"), "--like"),
        (("how-many", "-f", "@pod.yaml", "--timeout", "60"), "--timeout"),
    ],
)
def test_what_has_no_answer_ends_with_2(files, words, said):
    assert said in run(files, *words, status=2)


def test_what_is_sent_to_a_scheduler(files, monkeypatch):
    sent = []

    async def post(_self, path, body, seconds):
        sent.append((path, json.loads(body), seconds))
        if len(sent) == 2:
            raise NotAnswered("It is \x1b[31mbusy")
        answer = {"question": "fits", "rules": "1.36", "at": 1.0, "seconds": 0.1, "placed": 1,
                  "pods": [{"namespace": "a", "name": "b\x1b", "node": "n", "tie": True}]}  # fmt: skip
        return json.dumps(answer).encode()

    monkeypatch.setattr(Link, "post", post)
    words = (
        "fits",
        "-f",
        "@pod.yaml",
        "-n",
        "shop",
        "--extenders",
        "--timeout",
        "3",
        "--limit",
        "7",
    )
    text = run(files, *words, dump=False)
    assert "a/b\\x1b" in text
    assert "n *" in text
    assert "chance decides" in text
    [(path, body, seconds)] = sent
    assert (path, seconds) == ("/whatif", 13.0)
    assert body["objects"][0]["metadata"]["name"] == "new"
    del body["objects"]
    assert body == {"question": "fits", "copies": None, "namespace": "shop", "extenders": True,
                    "timeoutSeconds": 3.0, "limit": 7, "changes": False}  # fmt: skip
    assert "busy" in run(files, *words, dump=False, status=2)


def test_the_commands_are_those_of_kubectl_too():
    from app.cli.kubectl import command

    assert {"fits", "how-many", "drain", "lose", "needs"} <= set(command.list_commands(None))
    assert command.get_command(None, "how-many") is whatif.how_many
