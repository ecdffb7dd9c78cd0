"""The certificate that the bridge shows, read again when its files change: issuers renew it under our feet."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path

__all__ = ["CertificateError", "Certificates"]

log = logging.getLogger(__name__)


class CertificateError(Exception):
    """The certificate can't be used; somebody must act."""


class Certificates:
    """A server's TLS context whose certificate follows its files.

    New connections get the new certificate; those that are open keep theirs. A pair that does not fit, as between the
    writing of one file and the other, is passed over until it does.

    Args:
        certificate: PEM file of the certificate and its chain.
        key: PEM file of its private key.
        every: Seconds between looks at the files.

    Raises:
        CertificateError: The files can't be read, or don't fit each other.
    """

    def __init__(self, certificate: Path, key: Path, *, every: float = 10.0) -> None:
        self._certificate, self._key, self._every = certificate, key, every
        self._seen = self._state()
        self.context = _context()
        try:
            self.context.load_cert_chain(certificate, key)
        except (OSError, ssl.SSLError, ValueError) as error:
            raise CertificateError(_problem(certificate, key, error)) from error
        self.reloads = 0

    async def watch(self) -> None:
        """Look at the files until cancelled."""
        told = ""
        while True:
            await asyncio.sleep(self._every)
            state = self._state()
            if state == self._seen:
                continue
            try:
                _context().load_cert_chain(self._certificate, self._key)  # a pair that fails half-way leaves a mix
                self.context.load_cert_chain(self._certificate, self._key)
            except (OSError, ssl.SSLError, ValueError) as error:
                problem = _problem(self._certificate, self._key, error)
                if problem != told:
                    log.warning("the new certificate is not used, will retry reason=%s", problem)
                told = problem
                continue
            self._seen, told = state, ""
            self.reloads += 1
            log.info("the certificate was read again file=%s", self._certificate)

    def _state(self) -> list[tuple[int, int, int] | None]:
        states: list[tuple[int, int, int] | None] = []
        for path in (self._certificate, self._key):
            try:
                found = path.stat()
            except OSError:
                states.append(None)
            else:
                states.append((found.st_mtime_ns, found.st_size, found.st_ino))
        return states


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


def _problem(certificate: Path, key: Path, error: Exception) -> str:
    what = getattr(error, "reason", None) or getattr(error, "strerror", None) or error
    return f"{certificate} and {key}: {what}; a certificate in PEM and its private key without password are right"
