"""Scenarios of pod groups with the outcomes of kube-scheduler 1.36.2.

scenarios  what a scenario is: operations on a cluster, and how an outcome is summed up
generator  scenarios from seeds
record     records the outcomes of a real kube-scheduler (``python -m tests.parity.gangs.record``)
replay     plays a scenario against this scheduler, on virtual time
recorded   the scenarios with their outcomes, one a line
"""
