"""The dashboard: a page on this machine that shows a running scheduler (docs/dashboard.md).

server  serves the page, and passes on the feed of the scheduler
static  the page: plain modules, without a build step
"""
