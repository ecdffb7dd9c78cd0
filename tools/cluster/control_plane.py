"""etcd, kube-apiserver and kube-controller-manager on loopback, with RBAC on and certificates of their own."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

from tools.cluster.binaries import Binaries
from tools.cluster.certificates import Certificates
from tools.cluster.kubectl import Kubectl, kubeconfig
from tools.cluster.processes import Processes, free_port

__all__ = ["SERVICES", "ControlPlane"]

SERVICES = "10.97.0"
"""Network of cluster IPs, a /24; its first address is `kubernetes.default`."""


class ControlPlane:
    """The API server and what stands behind it.

    Args:
        folder: For data, certificates and logs.
        programs: Where the binaries are.
        processes: That they run among.
        address: Where nodes and pods reach the API server; empty without a node.
    """

    def __init__(self, folder: Path, programs: Binaries, processes: Processes, *, address: str = "") -> None:
        self.folder, self._programs, self._processes, self._address = folder, programs, processes, address
        self.certificates = Certificates(folder / "certificates")
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        admin = self.certificates.client("admin", "admin", "system:masters")
        self.kubectl = Kubectl(self.kubeconfig("admin", certificate=admin))

    @classmethod
    def attach(cls, folder: Path) -> ControlPlane:
        """A control plane that runs already, for use alone."""
        plane = cls.__new__(cls)
        plane.folder = folder
        plane.kubectl = Kubectl(folder / "admin.kubeconfig")
        plane.url = plane.kubectl.run("config", "view", "-o", "jsonpath={.clusters[0].cluster.server}")
        plane.port = int(plane.url.rpartition(":")[2])
        return plane

    def kubeconfig(self, name: str, *, certificate: tuple[Path, Path] | None = None, token: str = "") -> Path:
        """A kubeconfig of somebody."""
        return kubeconfig(
            self.folder / f"{name}.kubeconfig",
            server=self.url,
            authority=self.certificates.authority_base64,
            certificate=certificate,
            token=token,
        )

    def component(self, name: str, group: str | None = None) -> Path:
        """The kubeconfig of a part of Kubernetes, known by the name that RBAC has for it."""
        return self.kubeconfig(name, certificate=self.certificates.client(name, f"system:{name}", group))

    def account(self, namespace: str, name: str) -> Path:
        """The kubeconfig of a service account, with a token for a day."""
        token = self.kubectl.run("create", "token", name, "-n", namespace, "--duration=24h").strip()
        return self.kubeconfig(f"{namespace}-{name}", token=token)

    def start(self) -> None:
        """Start all three.

        Raises:
            ClusterError: One of them does not come up.
        """
        self._start_etcd()
        self._start_api_server()
        manager = self.component("kube-controller-manager")
        self._processes.start(
            "kube-controller-manager",
            [
                self._programs.path("kube-controller-manager"),
                f"--kubeconfig={manager}",
                f"--service-account-private-key-file={self.certificates.account_key}",
                f"--root-ca-file={self.certificates.authority}",
                "--use-service-account-credentials",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
                "--concurrent-job-syncs=20",
            ],
        )

    def start_scheduler(self) -> None:
        """Start kube-scheduler, which only nodes need."""
        self._processes.start(
            "kube-scheduler",
            [
                self._programs.path("kube-scheduler"),
                f"--kubeconfig={self.component('kube-scheduler')}",
                "--leader-elect=false",
                "--secure-port=0",
                "--kube-api-qps=200",
                "--kube-api-burst=400",
            ],
        )

    def ready(self) -> bool:
        """Whether the API server answers."""
        context = ssl.create_default_context(cafile=str(self.certificates.authority))
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=2, context=context) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _start_etcd(self) -> None:
        client, peer = free_port(), free_port()
        certificate, key = self.certificates.server("etcd")
        self._etcd = f"https://127.0.0.1:{client}"
        self._processes.start(
            "etcd",
            [
                self._programs.path("etcd"),
                f"--data-dir={self.folder / 'etcd'}",
                f"--listen-client-urls={self._etcd}",
                f"--advertise-client-urls={self._etcd}",
                f"--cert-file={certificate}",
                f"--key-file={key}",
                "--client-cert-auth",
                f"--trusted-ca-file={self.certificates.authority}",
                f"--listen-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                f"--initial-cluster=default=http://127.0.0.1:{peer}",
                "--unsafe-no-fsync",
                "--log-level=warn",
            ],
        )

    def _start_api_server(self) -> None:
        names = [name for name in (self._address, f"{SERVICES}.1", "kubernetes.default.svc") if name]
        certificate, key = self.certificates.server("kube-apiserver", *names)
        etcd_certificate, etcd_key = self.certificates.client("kube-apiserver-etcd", "kube-apiserver")
        kubelet_certificate, kubelet_key = self.certificates.client("kube-apiserver-kubelet", "admin", "system:masters")
        where = (
            [f"--advertise-address={self._address}", "--kubelet-preferred-address-types=InternalIP"]
            if self._address
            else ["--endpoint-reconciler-type=none", "--bind-address=127.0.0.1"]
        )
        authority = self.certificates.authority
        self._processes.start(
            "kube-apiserver",
            [
                self._programs.path("kube-apiserver"),
                *where,
                f"--secure-port={self.port}",
                f"--etcd-servers={self._etcd}",
                f"--etcd-cafile={authority}",
                f"--etcd-certfile={etcd_certificate}",
                f"--etcd-keyfile={etcd_key}",
                f"--tls-cert-file={certificate}",
                f"--tls-private-key-file={key}",
                f"--client-ca-file={authority}",
                f"--kubelet-client-certificate={kubelet_certificate}",
                f"--kubelet-client-key={kubelet_key}",
                "--authorization-mode=Node,RBAC",
                f"--service-account-issuer={self.url}",
                f"--service-account-key-file={self.certificates.account_key}",
                f"--service-account-signing-key-file={self.certificates.account_key}",
                f"--service-cluster-ip-range={SERVICES}.0/24",
                "--allow-privileged=true",
                "--shutdown-delay-duration=0s",
                "--max-requests-inflight=800",
            ],
        )
        self._processes.need("kube-apiserver", self.ready, "ready")
