"""The workload controllers: they create and delete the pods of Deployments, Jobs and the like.

Each module but ``controller`` has the rules of one kind: a pure function from a workload and what it owns to a
``Plan``.
"""
