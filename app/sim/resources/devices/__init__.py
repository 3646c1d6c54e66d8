"""The kinds of resource.k8s.io/v1 as the API server treats them (KEP-4381).

What is refused, and with which words, is what kube-apiserver 1.36 does with its default feature gates::

    checks      names, lists, taints, node selectors: what several kinds have
    requests    what claims, templates and classes ask for
    capacity    how the capacity of a device may be shared
    slices      what drivers offer
    allocation  the status of a claim
    strategies  all of it put together, by kind
"""
