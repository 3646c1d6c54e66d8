"""From a pod in the queue to a pod on a node: the loop, extenders, waiting, binding, preemption."""
