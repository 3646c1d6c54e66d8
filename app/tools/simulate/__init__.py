"""Simulations: where a workload would go in a cluster of which there is a dump.

The dump is loaded into an embedded cluster in this process, and the scheduler is a process of its own with the user's
configuration, as in production. Nothing here decides where a pod goes::

    configuring  the user's configuration, for the embedded cluster
    reading      files and folders: what is in them, and what is passed over
    loading      puts the dump into the cluster, then the workload
    unfolding    workloads as the pods that their controllers would make (owners, naming, daemons)
    settling     waits until nothing happens any more
    preemptions  who had to go for whom
    devices      the devices of nodes, counted
    summing      the cluster as it is at the end, as parts of an answer
    answer       what there is to tell: the JSON
    sheets       the same as tables (amounts), for the terminal and the page
    play         starts everything and puts it together
"""
