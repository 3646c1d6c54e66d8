"""Deterministic simulation: the scheduler's whole process against a model cluster that fails in every way, on virtual
time.

One *history* is what follows from one seed: the cluster, what its users do, and which requests, watches, leases, clocks
and processes fail when. Read the modules in this order:

    history      one seed, from the draw to the verdict
    shape        what a seed decides: configuration, replicas, kinds of faults
    simulation   virtual time, and event loops that live on it
    apiserver    the model API server: objects, versions, watches
    network      between the processes and the server: where requests and watches fail
    replica      the process under test
    extenders    model webhooks
    storage      volumes, their controllers and rules
    devices      devices, their controller and rules
    workload     what users, kubelets, controllers and other schedulers do
    checker      what must hold after each step, and in the end

``python -m tests.histories --seed 7`` repeats one history and prints its story; docs/testing.md says how to read it.
"""
