"""The demo: an embedded cluster, a sample extender and the scheduler in one go, and a table of what went where and why.

The cluster runs in this process; the extender and the scheduler are processes of their own, started as a user would
start them::

    scenario   nodes, pods, configuration: what is shown
    report     the tables
    play       starts everything and puts it together
"""
