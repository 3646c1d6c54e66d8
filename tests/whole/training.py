"""Pods and PodGroups in the shape in which controllers of training jobs make them."""

import uuid
from typing import Any

Object = dict[str, Any]

CUSTOM = "scheduling.x-k8s.io/v1alpha1"
LABEL = "scheduling.x-k8s.io/pod-group"
#: The name that some of these controllers write into their pods.
SCHEDULER = "scheduler-plugins-scheduler"


def _owner(version: str, kind: str, name: str, **more: Any) -> list[Object]:
    uid = uuid.uuid5(uuid.NAMESPACE_URL, f"{kind}/{name}")
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": str(uid), **more}]


def _controlled(version: str, kind: str, name: str) -> list[Object]:
    return _owner(version, kind, name, controller=True, blockOwnerDeletion=True)


def _group(name: str, members: int, owners: list[Object], **spec: Any) -> Object:
    return {
        "apiVersion": CUSTOM,
        "kind": "PodGroup",
        "metadata": {"name": name, "ownerReferences": owners},
        "spec": {"minMember": members, **spec},
    }


def _pod(name: str, owners: list[Object], labels: Object, requests: Object, **spec: Any) -> Object:
    container = {"name": "c", "image": "img", "resources": {"requests": requests}}
    metadata = {"name": name, "labels": labels, "ownerReferences": owners}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **spec},
    }


def ray_cluster(name: str, workers: int = 2) -> tuple[Object, list[Object]]:
    """KubeRay with batchScheduler scheduler-plugins: a head and workers."""
    owner = ("ray.io/v1", "RayCluster", name)
    group = _group(
        name, workers + 1, _owner(*owner), minResources={"cpu": f"{workers + 1}", "memory": "4Gi"}
    )
    pods = [ray_pod(name, "headgroup", "head")]
    return group, pods + [ray_pod(name, "worker", f"worker-{i}") for i in range(workers)]


def ray_pod(cluster: str, group: str, suffix: str) -> Object:
    """A head (of the group headgroup) or a worker."""
    head = group == "headgroup"
    labels = {
        "ray.io/cluster": cluster,
        "ray.io/group": group,
        "ray.io/is-ray-node": "yes",
        "ray.io/node-type": "head" if head else "worker",
        LABEL: cluster,
    }
    owners = _controlled("ray.io/v1", "RayCluster", cluster)
    requests = {"cpu": "1", "memory": "2Gi" if head else "1Gi"}
    return _pod(f"{cluster}-{suffix}", owners, labels, requests, schedulerName=SCHEDULER)


def mpi_job(name: str, workers: int = 2) -> tuple[Object, list[Object]]:
    """The MPI operator: a launcher, which is the pod of a Job, and workers; minMember counts both."""
    owners = _controlled("kubeflow.org/v2beta1", "MPIJob", name)
    group = _group(
        name,
        workers + 1,
        owners,
        minResources={"cpu": str(workers + 1), "memory": f"{workers + 1}Gi"},
        scheduleTimeoutSeconds=0,
    )
    labels = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": name,
        LABEL: name,
    }
    requests = {"cpu": "1", "memory": "1Gi"}
    pods = [
        _pod(
            f"{name}-worker-{i}",
            owners,
            labels
            | {
                "training.kubeflow.org/job-role": "worker",
                "training.kubeflow.org/replica-index": str(i),
            },
            requests,
            hostname=f"{name}-worker-{i}",
            subdomain=name,
            schedulerName=SCHEDULER,
            restartPolicy="Never",
        )
        for i in range(workers)
    ]
    launcher = labels | {
        "training.kubeflow.org/job-role": "launcher",
        "job-name": f"{name}-launcher",
    }
    job = _controlled("batch/v1", "Job", f"{name}-launcher")
    more = {"schedulerName": SCHEDULER, "restartPolicy": "Never"}
    return group, [*pods, _pod(f"{name}-launcher-x2vbq", job, launcher, requests, **more)]


def training_job(name: str, workers: int = 3) -> tuple[Object, list[Object]]:
    """The training operator (v1), here for a PyTorchJob: a master and workers, which are pods of the job itself."""
    owners = _controlled("kubeflow.org/v1", "PyTorchJob", name)
    resources = {"cpu": str(workers + 1)}
    group = _group(name, workers + 1, owners, minResources=resources, scheduleTimeoutSeconds=60)
    roles = [("master", 0), *(("worker", i) for i in range(workers))]
    pods = [
        _pod(
            f"{name}-{role}-{index}",
            owners,
            {
                "training.kubeflow.org/operator-name": "pytorchjob-controller",
                "training.kubeflow.org/job-name": name,
                "training.kubeflow.org/replica-type": role,
                "training.kubeflow.org/replica-index": str(index),
                LABEL: name,
            },
            {"cpu": "1"},
            schedulerName=SCHEDULER,
            restartPolicy="OnFailure",
        )
        for role, index in roles
    ]
    return group, pods


def train_job(name: str, nodes: int = 4) -> tuple[Object, list[Object]]:
    """The trainer (v2): the pods of the indexed Job of a JobSet; no scheduler is named."""
    owners = _controlled("trainer.kubeflow.org/v1alpha1", "TrainJob", name)
    group = _group(
        name,
        nodes,
        owners,
        minResources={"cpu": str(nodes)},
        scheduleTimeoutSeconds=120,
    )
    job = _controlled("batch/v1", "Job", f"{name}-node-0")
    pods = [
        _pod(
            f"{name}-node-0-{index}-abcde",
            job,
            {
                "batch.kubernetes.io/job-completion-index": str(index),
                "batch.kubernetes.io/job-name": f"{name}-node-0",
                "jobset.sigs.k8s.io/jobset-name": name,
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
                LABEL: name,
            },
            {"cpu": "1"},
            restartPolicy="Never",
            subdomain=name,
        )
        for index in range(nodes)
    ]
    return group, pods


def leader_worker_set(name: str, size: int = 4) -> tuple[list[Object], list[Object]]:
    """LeaderWorkerSet with spec.scheduling, one replica: a Workload and a PodGroup of scheduling.k8s.io/v1beta1 for
    leader and workers, which are evicted together.
    """
    kind = {"apiGroup": "leaderworkerset.x-k8s.io", "kind": "LeaderWorkerSet", "name": name}
    owners = _controlled("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", name)
    owned = {"leaderworkerset.sigs.k8s.io/name": name}
    policy = {"schedulingPolicy": {"gang": {"minCount": size}}, "disruptionMode": {"all": {}}}
    workload = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": {"name": f"{name}-6d8c", "ownerReferences": owners, "labels": owned},
        "spec": {"controllerRef": kind, "podGroupTemplates": [{"name": "replica", **policy}]},
    }
    group_name = f"{name}-6d8c-0-7f5b"
    group = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {
            "name": group_name,
            "ownerReferences": owners,
            "labels": {
                **owned,
                "leaderworkerset.sigs.k8s.io/group-index": "0",
                "leaderworkerset.sigs.k8s.io/template-revision-hash": "7f5b",
            },
        },
        "spec": {
            "workloadRef": {"workloadName": f"{name}-6d8c", "templateName": "replica"},
            **policy,
        },
    }
    stateful = _controlled("apps/v1", "StatefulSet", name)
    pods = [
        _pod(
            f"{name}-0" + (f"-{index}" if index else ""),
            stateful,
            {
                "leaderworkerset.sigs.k8s.io/name": name,
                "leaderworkerset.sigs.k8s.io/worker-index": str(index),
            },
            {"cpu": "1"},
            schedulingGroup={"podGroupName": group_name},
        )
        for index in range(size)
    ]
    return [workload, group], pods


def ray_cluster_workload(
    name: str, version: str, workers: int = 2
) -> tuple[list[Object], list[Object]]:
    """KubeRay with scheduling.k8s.io: a Workload and one PodGroup for the head and all workers."""
    owners = _controlled("ray.io/v1", "RayCluster", name)
    labels = {"ray.io/cluster": name}
    policy = {"gang": {"minCount": workers + 1}}
    workload = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "Workload",
        "metadata": {"name": name, "labels": labels, "ownerReferences": owners},
        "spec": {
            "controllerRef": {"apiGroup": "ray.io", "kind": "RayCluster", "name": name},
            "podGroupTemplates": [{"name": "cluster", "schedulingPolicy": policy}],
        },
    }
    old = {"workload": {"workloadName": name, "podGroupTemplateName": "cluster"}}
    reference = (
        {"podGroupTemplateRef": old}
        if version == "v1alpha2"
        else {"workloadRef": {"workloadName": name, "templateName": "cluster"}}
    )
    group = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": {"name": f"{name}-cluster", "labels": labels, "ownerReferences": owners},
        "spec": {**reference, "schedulingPolicy": policy},
    }
    pods = [ray_pod(name, "headgroup", "head")]
    pods += [ray_pod(name, "worker", f"worker-{i}") for i in range(workers)]
    for pod in pods:
        del pod["metadata"]["labels"][LABEL]
        pod["spec"]["schedulingGroup"] = {"podGroupName": f"{name}-cluster"}
        pod["spec"]["schedulerName"] = "default-scheduler"
    return [workload, group], pods
