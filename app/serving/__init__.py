"""What the scheduler answers over HTTPS (docs/spec/endpoints.md#paths).

options   how and where it listens, and who is believed
tls       the certificate: given and reloaded, or made in memory
access    who somebody is and what they may see
health    /healthz, /livez, /readyz
pages     /metrics, /configz, /statusz, /flagz
debug     /debug/...: queue, cache, histories of pods, tasks, verbosity
server    the listener and its middlewares
"""
