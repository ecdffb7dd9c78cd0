"""The managers of Trainer, JobSet and Kueue beside the API server, with their own RBAC, CRDs and webhooks."""

from __future__ import annotations

import copy
import os
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from tools.cluster.binaries import Binaries, module_folder
from tools.cluster.control_plane import ControlPlane
from tools.cluster.processes import Processes, answers, free_port, wait_until

__all__ = ["TRAINER", "Managers"]

TRAINER = "kubeflow-trainer-controller-manager"
"""Service account and Service of Trainer's manager."""

_KEPT = frozenset(
    {
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "MutatingWebhookConfiguration",
        "Namespace",
        "Role",
        "RoleBinding",
        "ServiceAccount",
        "ValidatingWebhookConfiguration",
    }
)
_KUEUE_KINDS = frozenset(
    {"clusterqueues", "cohorts", "jobs", "jobsets", "resourceflavors", "trainjobs", "workloads", "workloads/status"}
)
_CERTIFICATES_OF_KUEUE = "kueue/metrics/certs"  # under /etc, and can't be told otherwise


class Managers:
    """Starts the managers, and installs what they bring.

    Args:
        plane: That they work on.
        programs: Where the binaries are.
        processes: That they run among.
        trainer: Version of Trainer; empty for the one that go.mod names.
    """

    def __init__(self, plane: ControlPlane, programs: Binaries, processes: Processes, *, trainer: str = "") -> None:
        self._plane, self._programs, self._processes = plane, programs, processes
        self._old = trainer
        self._folder = plane.folder

    def start(self, *, kueue: bool = True) -> None:
        """Start them, and wait until each answers.

        Raises:
            ClusterError: One does not come up.
        """
        self._start_jobset()
        self.start_trainer()
        if kueue:
            self.start_kueue()

    def _start_jobset(self) -> None:
        port, certificates = self._webhook("jobset")
        objects = self._plane.kubectl.kustomize(module_folder("sigs.k8s.io/jobset") / "config/default")
        self._install(objects, port, namespace="jobset-system")
        config = {
            "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
            "kind": "Configuration",
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "webhook": {"port": port, "certDir": str(certificates)},
            "clientConnection": {"qps": 200, "burst": 400},
        }
        self._run(
            "jobset",
            [
                self._programs.path("jobset"),
                f"--config={self._config('jobset', config)}",
                f"--kubeconfig={self._plane.account('jobset-system', 'jobset-controller-manager')}",
                "--metrics-bind-address=0",
                "--health-probe-bind-address=0",
            ],
            port,
        )

    def start_trainer(self) -> None:
        """Trainer's manager, and its runtimes."""
        port, certificates = self._webhook(
            "trainer", f"{TRAINER}.kubeflow-system.svc", folder="k8s-webhook-server/serving-certs"
        )
        manifests = module_folder("github.com/kubeflow/trainer/v2", self._old) / "manifests"
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kubeflow-system"}}
        objects = [namespace]
        for part in ("crds", "rbac", "webhook"):
            objects += self._plane.kubectl.kustomize(manifests / "base" / part)
        self._install(objects, port, namespace="kubeflow-system")
        config: dict[str, Any] = {
            "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": port, "host": "127.0.0.1"},
            "certManagement": {"enable": False},
            "clientConnection": {"qps": 200, "burst": 400},
        }
        account = self._plane.account("kubeflow-system", TRAINER)
        command: list[str | Path] = [
            self._programs.path(f"trainer-{self._old}" if self._old else "trainer"),
            f"--config={self._config('trainer', config)}",
            f"--kubeconfig={account}",
        ]
        self._run("trainer", command, port, environment={"TMPDIR": str(certificates.parent.parent)})
        runtimes = self._plane.kubectl.kustomize(manifests / "overlays/runtimes")
        self._plane.kubectl.apply(runtimes)

    def start_kueue(self) -> None:
        """Kueue's manager."""
        port, certificates = self._webhook("kueue")
        objects = self._plane.kubectl.kustomize(module_folder("sigs.k8s.io/kueue") / "config/default")
        self._install(objects, port, namespace="kueue-system", kinds=_KUEUE_KINDS)
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": "0"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": port, "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "clientConnection": {"qps": 200, "burst": 400},
            "integrations": {"frameworks": ["batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]},
        }
        program = [
            str(self._programs.path("kueue")),
            f"--config={self._config('kueue', config)}",
            f"--kubeconfig={self._plane.account('kueue-system', 'kueue-controller-manager')}",
            "--feature-gates=VisibilityOnDemand=false",
        ]
        self._run("kueue", self._with_certificates_in_etc(program, certificates), port)

    def _with_certificates_in_etc(self, program: list[str], certificates: Path) -> list[str]:
        """Run a program that sees the certificates under /etc, which stays as it is for everybody else."""
        layer = self._folder / "kueue-etc"
        layer.mkdir(exist_ok=True)
        inside = f"{layer}/upper/{_CERTIFICATES_OF_KUEUE}"
        script = (
            f"mount -t tmpfs tmpfs {layer} && mkdir -p {inside} {layer}/work"
            f" && cp {certificates}/tls.crt {certificates}/tls.key {inside}/"
            f" && mount -t overlay overlay -o lowerdir=/etc,upperdir={layer}/upper,workdir={layer}/work /etc"
            f" && exec {shlex.join(program)}"
        )
        user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        return ["unshare", *user, "--mount", "--", "sh", "-c", script]

    def _install(
        self, objects: Iterable[dict[str, Any]], port: int, *, namespace: str, kinds: frozenset[str] | None = None
    ) -> None:
        """Apply what a manager brings, with its webhooks led to its port here."""
        first, webhooks = [], []
        for each in objects:
            if each["kind"] not in _KEPT:
                continue
            made = copy.deepcopy(each)
            if made["kind"] in ("ServiceAccount", "Role", "RoleBinding"):
                made["metadata"].setdefault("namespace", namespace)
            for subject in made.get("subjects", []):
                if subject["kind"] == "ServiceAccount":
                    subject.setdefault("namespace", namespace)
            if made["kind"].endswith("WebhookConfiguration"):
                made["webhooks"] = [
                    self._led(webhook, port) for webhook in made["webhooks"] if _concerns(webhook, kinds)
                ]
                webhooks.append(made)
            else:
                conversion = made.get("spec", {}).get("conversion", {}).get("webhook")
                if conversion:
                    conversion["clientConfig"] = self._client(port, "/convert")
                first.append(made)
        kubectl = self._plane.kubectl
        kubectl.apply([each for each in first if each["kind"] == "Namespace"])
        kubectl.apply([each for each in first if each["kind"] != "Namespace"])
        names = [each["metadata"]["name"] for each in first if each["kind"] == "CustomResourceDefinition"]
        wait_until(lambda: self._established(names), f"established: {', '.join(names)}")
        kubectl.apply(webhooks)

    def _established(self, names: list[str]) -> bool:
        found = self._plane.kubectl.get("crd")["items"]
        established = {
            crd["metadata"]["name"]
            for crd in found
            for condition in crd.get("status", {}).get("conditions") or []
            if condition["type"] == "Established" and condition["status"] == "True"
        }
        return established.issuperset(names)

    def _led(self, webhook: dict[str, Any], port: int) -> dict[str, Any]:
        return {**webhook, "clientConfig": self._client(port, webhook["clientConfig"]["service"]["path"])}

    def _client(self, port: int, path: str) -> dict[str, str]:
        return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": self._plane.certificates.authority_base64}

    def _webhook(self, name: str, *hosts: str, folder: str = "") -> tuple[int, Path]:
        """A port and a folder of certificates for a manager's webhooks."""
        certificate, _ = self._plane.certificates.server(f"{name}-webhook", *hosts)
        if not folder:
            return free_port(), certificate.parent
        linked = self._folder / f"{name}-tmp" / folder
        linked.parent.mkdir(parents=True, exist_ok=True)
        linked.symlink_to(certificate.parent)
        return free_port(), linked

    def _config(self, name: str, config: dict[str, Any]) -> Path:
        path = self._folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(config))
        return path

    def _run(
        self, name: str, command: Sequence[str | Path], port: int, environment: dict[str, str] | None = None
    ) -> None:
        self._processes.start(name, command, environment=environment)
        self._processes.need(name, lambda: answers(port), "answering at its webhook")


def _concerns(webhook: dict[str, Any], kinds: frozenset[str] | None) -> bool:
    return kinds is None or any(kind in kinds for rule in webhook["rules"] for kind in rule["resources"])
