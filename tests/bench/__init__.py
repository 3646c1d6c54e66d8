"""``python -m tests.bench``: how fast a scheduler binds a backlog of pods, and what that costs.

The scheduler runs as its own process, the API server as another: the embedded cluster, or a live one.

    workload   the nodes and pods of each shape
    server     the embedded cluster, filled in its own process
    cluster    making, wiping and watching them
    extender   an extender that answers at once, after a delay, or never
    usage      CPU and memory of a process and its children
    measuring  one round
    stages     one stage after another in this process, without an API server
    results    what comes out, limits, ratios
"""
