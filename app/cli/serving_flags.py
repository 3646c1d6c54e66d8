"""The flags of serving, authentication and authorization
(docs/spec/endpoints.md#flags), and ``--insecure-http``, which is our own."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.cli.flags import Flag, boolean_flag, read_port, read_seconds, text_flag
from app.serving.options import ServingOptions

_SERVING: Final = "Serving"
_ACCESS: Final = "Who may see what is served"
_LOOPBACK: Final = "127.0.0.1"


def serving_flags() -> Iterator[Flag]:
    """The options of ``run``."""
    yield text_flag(
        "--secure-port",
        _SERVING,
        "Port of the HTTPS endpoints; 0 for none (10259).",
        type=read_port,
        metavar="PORT",
    )
    yield text_flag("--bind-address", _SERVING, "Address to listen on (0.0.0.0).")
    for name, text in {
        "--tls-cert-file": "Certificate chain, PEM; read again when it changes. Without one, a self-signed one is made.",
        "--tls-private-key-file": "Its key, PEM, without a password.",
    }.items():
        yield text_flag(name, _SERVING, text, metavar="FILE")
    yield text_flag("--tls-min-version", _SERVING, "VersionTLS12 (the default) or VersionTLS13.")
    yield boolean_flag(
        "--insecure-http",
        _SERVING,
        f"For development: serve without TLS, on {_LOOPBACK} unless --bind-address says otherwise.",
    )
    yield from _access_flags()


def _access_flags() -> Iterator[Flag]:
    for name, text in {
        "--client-ca-file": "Authorities of client certificates; without them nobody is known by one.",
        "--authentication-kubeconfig": "Of the server that reviews tokens; the scheduler's own.",
        "--authorization-kubeconfig": "Of the server that reviews access; the scheduler's own.",
    }.items():
        yield text_flag(name, _ACCESS, text, metavar="FILE")
    yield boolean_flag(
        "--authentication-skip-lookup",
        _ACCESS,
        "Have no tokens reviewed; their owners are anonymous.",
    )
    for name in (
        "--authentication-token-webhook-cache-ttl",
        "--authorization-webhook-cache-authorized-ttl",
        "--authorization-webhook-cache-unauthorized-ttl",
    ):
        yield text_flag(
            name,
            _ACCESS,
            "How long a review is good for (10s).",
            type=read_seconds,
            metavar="DURATION",
        )
    yield text_flag(
        "--authorization-always-allow-paths",
        _ACCESS,
        "Paths that everybody may see, separated by commas (/healthz,/readyz,/livez).",
    )


def serving_options(given: Mapping[str, Any]) -> ServingOptions:
    """What the flags say, by click's names, which are those of the fields. Raises ServingError."""
    fields = ServingOptions.__struct_fields__
    options = {name: given[name] for name in fields if given.get(name) is not None}
    if options.get("insecure_http"):
        options.setdefault("bind_address", _LOOPBACK)
    paths = options.get("authorization_always_allow_paths")
    if paths is not None:
        options["authorization_always_allow_paths"] = tuple(p for p in paths.split(",") if p)
    return ServingOptions(**options)
