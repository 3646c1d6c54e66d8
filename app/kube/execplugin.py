"""Runs credential plugins: commands in a kubeconfig that print an ExecCredential (client.authentication.k8s.io).

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar, Final

import msgspec

from app.http.tls import ClientCertificate
from app.kube.connection import Identity
from app.kube.errors import UNREADABLE, ConnectionSettingsError
from app.model.discreet import Discreet
from app.model.timestamps import parse_time

#: Timeout of a plugin in seconds; some open a browser or ask a slow identity provider.
PATIENCE: Final = 60.0
#: Renew this many seconds before expiry, or after 9/10 of a shorter life.
EARLY: Final = 60.0
#: Bytes of a plugin's output beyond which it is ended, and of its messages that are kept, the last ones.
MAX_OUTPUT: Final = 1024 * 1024
_KEPT_MESSAGES: Final = 4096
_READ_BYTES: Final = 64 * 1024
#: Seconds for which the end of a killed plugin is waited for.
_END_SECONDS: Final = 5.0


class _CredentialStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    status: _CredentialStatus | None = None


_CREDENTIAL: Final = msgspec.json.Decoder(_ExecCredential)


class ExecPlugin(Discreet, frozen=True):
    """A plugin's command line; ``environ`` is its whole environment."""

    SECRETS: ClassVar = frozenset({"environ"})

    api_version: str
    args: Sequence[str]
    environ: Mapping[str, str]
    install_hint: str = ""
    #: The cluster for ``provideClusterInfo``; None without that.
    cluster: Mapping[str, object] | None = None

    async def identify(self, wall: Callable[[], float]) -> Identity:
        """Runs the plugin once. ``wall`` returns the time in seconds since the epoch. Raises
        ConnectionSettingsError."""
        return self._identity(self._status(await self._output()), wall())

    async def _output(self) -> bytes:
        try:
            process = await asyncio.create_subprocess_exec(
                *self.args,
                env={**self.environ, "KUBERNETES_EXEC_INFO": self._exec_info()},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as err:
            raise self._error(
                f"cannot be started: {err.strerror}. {self.install_hint}".rstrip()
            ) from err
        except (ValueError, TypeError, RecursionError) as err:  # what no argument or JSON can hold
            raise self._error(f"cannot be started: {err}") from err
        try:
            async with asyncio.timeout(PATIENCE), asyncio.TaskGroup() as group:
                reading = group.create_task(_beginning(process.stdout, MAX_OUTPUT + 1))
                messages = group.create_task(_end(process.stderr, _KEPT_MESSAGES))
                output = await reading
                if len(output) > MAX_OUTPUT:
                    messages.cancel()
                else:
                    await process.wait()
        except TimeoutError as err:
            raise self._error(f"gave no answer in {PATIENCE:.0f} s") from err
        finally:
            await _reap(process)
        if len(output) > MAX_OUTPUT:
            raise self._error(f"printed more than {MAX_OUTPUT} bytes")
        if process.returncode != 0:
            message = messages.result().decode(errors="replace").strip()[-256:]
            raise self._error(f"failed with exit code {process.returncode}: {message}")
        return output

    def _exec_info(self) -> str:
        spec: dict[str, object] = {"interactive": False}
        if self.cluster is not None:
            spec["cluster"] = self.cluster
        info = {"apiVersion": self.api_version, "kind": "ExecCredential", "spec": spec}
        return msgspec.json.encode(info).decode()

    def _status(self, output: bytes) -> _CredentialStatus:
        try:
            credential = _CREDENTIAL.decode(output)
        except UNREADABLE as err:
            raise self._error(f"printed no ExecCredential: {err}") from err
        if credential.api_version != self.api_version:
            raise self._error(
                f"is configured to use API version {self.api_version}, but returned {credential.api_version!r}"
            )
        if credential.status is None:
            raise self._error("returned an ExecCredential without status")
        return credential.status

    def _identity(self, status: _CredentialStatus, now: float) -> Identity:
        chain, key = status.client_certificate_data, status.client_key_data
        if bool(chain) != bool(key):
            raise self._error("returned only one of clientCertificateData and clientKeyData")
        if not chain and not status.token:
            raise self._error("returned neither a token nor a client certificate")
        valid_for = self._valid_for(status.expiration_timestamp, now)
        certificate = ClientCertificate(chain.encode(), key.encode()) if chain and key else None
        try:
            return Identity(
                f"Bearer {status.token}" if status.token else None, certificate, valid_for
            )
        except ConnectionSettingsError as err:
            raise self._error(f"returned unusable credentials: {err}") from err

    def _valid_for(self, expires: str | None, now: float) -> float | None:
        if not expires:
            return None
        try:
            left = parse_time(expires) - now
        except ValueError as err:
            raise self._error(f"returned a bad expirationTimestamp: {err}") from err
        return max(left - min(EARLY, left / 10), 1.0)

    def _error(self, problem: str) -> ConnectionSettingsError:
        return ConnectionSettingsError(
            f"getting credentials: exec plugin {self.args[0]}: {problem}"
        )


async def _beginning(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    """The output, or the first ``limit`` bytes of it."""
    found = bytearray()
    while stream is not None and len(found) < limit:
        chunk = await stream.read(min(_READ_BYTES, limit - len(found)))
        if not chunk:
            break
        found += chunk
    return bytes(found)


async def _end(stream: asyncio.StreamReader | None, limit: int) -> bytes:
    """The last ``limit`` bytes of the output."""
    found = b""
    while stream is not None and (chunk := await stream.read(_READ_BYTES)):
        found = (found + chunk)[-limit:]
    return found


async def _reap(process: asyncio.subprocess.Process) -> None:
    """Kills the process and its children, if they still run."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):  # a child in a group of its own may hold the pipes
        async with asyncio.timeout(_END_SECONDS):
            await asyncio.gather(_end(process.stdout, 1), _end(process.stderr, 1))
            await process.wait()
