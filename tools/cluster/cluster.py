"""A cluster from nothing, and back to nothing: control plane, managers, and a node where the machine can have one."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tools.cluster.binaries import binaries
from tools.cluster.control_plane import ControlPlane
from tools.cluster.managers import Managers
from tools.cluster.node import ADDRESS, Node, remove
from tools.cluster.processes import Processes
from tools.cluster.product import Product

__all__ = ["Cluster", "attach", "stop"]


class Cluster:
    """One cluster in one folder.

    Args:
        folder: For all that it needs; made here, removed by `down`.
        node: Whether pods run on a real node; needs root on Linux, containerd and runc.
        kueue: Whether Kueue is installed.
        trainer: Version of Trainer; empty for the newest.
    """

    def __init__(self, folder: Path, *, node: bool, kueue: bool = True, trainer: str = "") -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        programs = binaries()
        self.processes = Processes(folder / "logs")
        self.plane = ControlPlane(folder, programs, self.processes, address=ADDRESS if node else "")
        self.node = Node(self.plane, programs, self.processes) if node else None
        self.managers = Managers(self.plane, programs, self.processes, trainer=trainer)
        self.product = Product(self.plane, self.processes, address=ADDRESS if node else "127.0.0.1")
        self._kueue = kueue
        self.kubectl = self.plane.kubectl

    def up(self, *, product: bool = True) -> None:
        """Start everything; without `product` trainwarden is not started.

        Raises:
            ClusterError: A part does not come up; `down` is still to be called.
        """
        if self.node is not None:
            self.node.network()
        self.plane.start()
        self.managers.start(kueue=self._kueue)
        if self.node is not None:
            self.node.start()
        if product:
            self.product.start()

        told = {
            "nats_port": self.product.nats_port,
            "bridge_port": self.product.bridge_port,
            "node": self.node is not None,
        }
        (self.folder / "cluster.json").write_text(json.dumps(told))

    def down(self) -> None:
        """Stop everything and remove the folder."""
        stop(self.folder)
        self.processes.reap()


def attach(folder: Path) -> Cluster:
    """A cluster that another process has started, for use alone; it can't be started again through this.

    Raises:
        FileNotFoundError: None runs there.
    """
    told = json.loads((folder / "cluster.json").read_text())
    cluster = Cluster.__new__(Cluster)
    cluster.folder, cluster.processes = folder, Processes(folder / "logs")
    cluster.plane = ControlPlane.attach(folder)
    cluster.kubectl = cluster.plane.kubectl
    address = ADDRESS if told["node"] else "127.0.0.1"
    cluster.product = Product(cluster.plane, cluster.processes, address=address, nats_port=told["nats_port"])
    cluster.product.bridge_port = told["bridge_port"]
    cluster.node = Node(cluster.plane, binaries(), cluster.processes) if told["node"] else None
    return cluster


def stop(folder: Path) -> None:
    """Stop the cluster of a folder, also one that another process has started, and remove the folder."""
    processes = Processes(folder / "logs")
    remove(folder, processes)
    for name in reversed(processes.names()):
        processes.stop(name)
    shutil.rmtree(folder, ignore_errors=True)
