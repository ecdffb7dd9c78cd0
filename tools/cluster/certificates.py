"""Certificates and keys of one cluster: an authority of its own, servers, and clients with their RBAC names."""

from __future__ import annotations

import base64
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

__all__ = ["Certificates"]


class Certificates:
    """Made once in a folder, PEM files all.

    Args:
        folder: For `ca.crt` and the others.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._ca = trustme.CA(organization_name="trainwarden test cluster")
        self.authority = folder / "ca.crt"
        self._ca.cert_pem.write_to_path(str(self.authority))
        self.account_key = folder / "service-accounts.key"
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self.account_key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
            )
        )
        self.account_key.chmod(0o600)

    @property
    def authority_base64(self) -> str:
        """The authority as Kubernetes objects want it."""
        return base64.b64encode(self.authority.read_bytes()).decode()

    def server(self, name: str, *names: str) -> tuple[Path, Path]:
        """Certificate and key of a server, in `<name>/tls.crt` and `<name>/tls.key` as Kubernetes' managers want it.

        Args:
            name: Folder.
            names: Addresses and host names besides 127.0.0.1 and localhost.
        """
        made = self._ca.issue_cert("127.0.0.1", "localhost", *names, common_name=name)
        return self._write(name, made)

    def client(self, name: str, user: str, group: str | None = None) -> tuple[Path, Path]:
        """Certificate and key of a client.

        Args:
            name: Folder.
            user: RBAC user.
            group: RBAC group.
        """
        made = self._ca.issue_cert("localhost", common_name=user, organization_name=group)
        return self._write(name, made)

    def _write(self, name: str, made: trustme.LeafCert) -> tuple[Path, Path]:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        certificate, key = folder / "tls.crt", folder / "tls.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in made.cert_chain_pems))
        made.private_key_pem.write_to_path(str(key))
        key.chmod(0o600)
        return certificate, key
