"""trainwarden for a cluster: its CRDs, rights and webhooks in it; NATS and the roles as processes of this machine."""

from __future__ import annotations

import secrets
import sys
from pathlib import Path

import yaml
from tools.cluster.control_plane import ControlPlane
from tools.cluster.processes import ClusterError, Processes, answers, free_port, wait_until
from tools.cluster.runtime import ROOT, host_runtime

__all__ = ["NAMESPACE", "Product"]

NAMESPACE = "trainwarden"


class Product:
    """Starts trainwarden's roles as processes of this machine.

    Args:
        plane: The cluster.
        processes: That they run among.
        address: Where pods and the API server reach this machine; loopback without a node.
        nats_port: Of a nats-server that runs already.
    """

    def __init__(
        self, plane: ControlPlane, processes: Processes, *, address: str = "127.0.0.1", nats_port: int = 0
    ) -> None:
        self._plane, self._processes, self.address = plane, processes, address
        self._folder = plane.folder / "trainwarden"
        self._webhook_port, self.bridge_port = free_port(), free_port()
        self.nats_port = nats_port or free_port()
        self.nats_url = f"nats://{address}:{self.nats_port}"
        self.token_file = self._folder / "nats-token"

    def install(self) -> None:
        """Install CRDs, rights and webhooks."""
        kubectl = self._plane.kubectl
        self._folder.mkdir(exist_ok=True)
        kubectl.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}])
        kubectl.run("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "deploy/crds"))
        kubectl.run("apply", "--server-side", "-f", str(ROOT / "deploy/manifests/rbac.yaml"))
        wait_until(
            lambda: "trainingruns" in kubectl.run("api-resources", "--api-group=trainwarden.dev", check=False),
            "CRDs are served",
        )

    def start(self, *operator_options: str) -> None:
        """Start all roles, and wait until each is of use; where pods run, with a runtime for examples."""
        self.install()
        self.start_nats()
        self.start_role("engine")
        self.start_role("notifier")
        self.start_operator(*operator_options)
        self.start_bridge()
        if self.address != "127.0.0.1":
            told = {"TRAINWARDEN_NATS_URL": self.nats_url, "TRAINWARDEN_NATS_TOKEN": self.token_file.read_text()}
            self._plane.kubectl.apply([host_runtime("host-python", self._plane.folder / "data", told)])

    def start_nats(self) -> None:
        """Start nats-server with JetStream and a token."""
        if not self.token_file.exists():
            self.token_file.write_text(secrets.token_hex(16))
            self.token_file.chmod(0o600)
        config = self._folder / "nats.conf"
        config.write_text(
            f'host: "{self.address}"\nport: {self.nats_port}\nmax_payload: 1MB\n'
            f'jetstream {{ store_dir: "{self._folder}/jetstream", max_file_store: 20GB }}\n'
            f'authorization {{ token: "{self.token_file.read_text()}" }}\n'
        )
        self._processes.start("nats", [Path(sys.executable).with_name("nats-server"), "-c", config])
        self._processes.need("nats", lambda: answers(self.nats_port, self.address), "answering")

    def start_role(self, name: str, *options: str, kubeconfig: Path | None = None, as_: str = "") -> None:
        """Start one role."""
        command: list[str | Path] = [
            Path(sys.executable).with_name("trainwarden"),
            name,
            f"--nats-url={self.nats_url}",
            f"--nats-token-file={self.token_file}",
            *options,
        ]
        self._processes.start(as_ or name, command, environment={"KUBECONFIG": str(kubeconfig or "/nonexistent")})

    def start_operator(self, *options: str, webhooks: bool = True) -> None:
        """Start the operator with its own rights alone, and lead the webhooks to it."""
        account = self._plane.account(NAMESPACE, "trainwarden-operator")
        options = ("--runs-per-hour=10000", *options)  # many tests end a run each
        if webhooks:
            certificate, key = self._plane.certificates.server("trainwarden-webhook", self.address)
            options = (
                *options,
                f"--webhook-port={self._webhook_port}",
                f"--webhook-address={self.address}",
                f"--certificate={certificate}",
                f"--key={key}",
            )
        self.start_role("operator", *options, kubeconfig=account)
        needed = self._processes.need
        needed("operator", lambda: "works jobs=" in self._processes.tail("operator", 400), "working")
        if webhooks:
            needed("operator", lambda: answers(self._webhook_port, self.address), "serving webhooks")
            self._plane.kubectl.apply(self._webhooks())
            needed("operator", self.refuses, "refusing what is wrong")

    def refuses(self) -> bool:
        """Whether a policy that can't be judged is refused: the API server learns late of a webhook."""
        rule = {"name": "bad", "when": "1 +"}
        body = {
            "apiVersion": "trainwarden.dev/v1alpha1",
            "kind": "TrainingPolicy",
            "metadata": {"name": "bad", "namespace": NAMESPACE},
            "spec": {"selector": {}, "rules": [rule]},
        }
        try:
            self._plane.kubectl.run("create", "--dry-run=server", "-f", "-", stdin=yaml.safe_dump(body))
        except ClusterError as error:
            return "denied the request" in str(error)
        return False

    def start_bridge(self) -> None:
        """Start the HTTP bridge."""
        certificate, key = self._plane.certificates.server("trainwarden-bridge", self.address)
        account = self._plane.account(NAMESPACE, "trainwarden-bridge")
        self.start_role(
            "bridge",
            f"--certificate={certificate}",
            f"--key={key}",
            f"--host={self.address}",
            f"--port={self.bridge_port}",
            kubeconfig=account,
        )
        self._processes.need("bridge", lambda: answers(self.bridge_port, self.address), "answering")

    def _webhooks(self) -> list[dict[str, object]]:
        made = list(yaml.safe_load_all((ROOT / "deploy/manifests/webhooks.yaml").read_text()))
        for configuration in made:
            for webhook in configuration["webhooks"]:
                path = webhook["clientConfig"]["service"]["path"]
                webhook["clientConfig"] = {
                    "url": f"https://{self.address}:{self._webhook_port}{path}",
                    "caBundle": self._plane.certificates.authority_base64,
                }
        return made
