"""Serves the scheduler's endpoints over HTTPS (docs/spec/endpoints.md#paths).

options      addresses, TLS, authentication, authorization
tls          the server certificate: from files, or self-signed
certificates makes the self-signed one
access       authentication and authorization of requests
connections  limits and timeouts of connections
listening    opens the port
checks       named health checks and their report
health       /healthz, /livez, /readyz
pages        /metrics, /configz, /statusz, /flagz
debug        /debug/...: queue, cache, pod histories, tasks, verbosity
debugger     compares and dumps the cache: /debug/cache and SIGUSR2
extenders    /extenders/requeue
feed         /debug/feed: nodes, queue and decisions as they change
requests     parses parts of requests
server       the listener and its middlewares
"""
