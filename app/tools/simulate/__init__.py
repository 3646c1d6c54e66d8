"""Simulates where a workload would go in the cluster of a dump.

The dump is loaded into an embedded cluster in this process. The scheduler runs as a separate process with the user's
configuration, as in production; nothing here chooses nodes::

    run            starts everything, waits until nothing changes any more, and builds the result
    configuration  the user's configuration, adapted to the embedded cluster
    manifests      reads files and folders, and says what is skipped
    loader         loads the dump into the cluster, then the workload
    workloads      expands workloads into the pods that their controllers would create
    summary        the final state of the cluster as parts of the result
    result         the result: what ``-o json`` prints
    tables         the result for the terminal and as an HTML page
"""
