"""A pod's way from the queue to its node: process, wiring, loop, binding, preemption, election."""
