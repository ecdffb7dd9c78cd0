"""Fake nodes and pods by kwok, for numbers: pods that are bound become ready at once, and go at once when deleted."""

from __future__ import annotations

import yaml
from tools.cluster.binaries import Binaries, module_folder
from tools.cluster.control_plane import ControlPlane
from tools.cluster.processes import Processes

__all__ = ["start_fakes"]


def start_fakes(
    plane: ControlPlane, programs: Binaries, processes: Processes, *, nodes: int, pods_per_node: int
) -> None:
    """Start kwok and the scheduler, and make nodes.

    Args:
        plane: Of the cluster.
        programs: Where the binaries are.
        processes: That they run among.
        nodes: How many.
        pods_per_node: That each takes.
    """
    stages = module_folder("sigs.k8s.io/kwok") / "kustomize/stage"
    listed = (each for part in ("node/fast", "pod/fast") for each in plane.kubectl.kustomize(stages / part))
    kinds = [each for each in listed if each["metadata"]["name"] != "pod-complete"]  # trainings go on
    config = plane.folder / "kwok.yaml"
    config.write_text(yaml.safe_dump_all(kinds))
    admin = plane.folder / "admin.kubeconfig"
    processes.start(
        "kwok",
        [
            programs.path("kwok"),
            f"--kubeconfig={admin}",
            "--manage-all-nodes",
            f"--config={config}",
            "--cidr=10.200.0.0/16",
            "--node-ip=10.200.255.254",
            "--node-lease-duration-seconds=120",
        ],
    )
    plane.start_scheduler()
    size = {"cpu": "1000", "memory": "10Ti", "pods": str(pods_per_node), "nvidia.com/gpu": "10000"}
    plane.kubectl.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"fake-{number}", "labels": {"kubernetes.io/hostname": f"fake-{number}"}},
            "status": {"capacity": size, "allocatable": size},
        }
        for number in range(nodes)
    )
    for number in range(nodes):
        patch = f'{{"status":{{"capacity":{{"pods":"{pods_per_node}"}},"allocatable":{{"pods":"{pods_per_node}"}}}}}}'
        plane.kubectl.run("patch", "node", f"fake-{number}", "--subresource=status", "--type=merge", "-p", patch)
