"""One real node on this machine: containerd, kubelet, scheduler, kube-proxy and DNS, on a bridge of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import yaml
from tools.cluster.binaries import Binaries
from tools.cluster.control_plane import SERVICES, ControlPlane
from tools.cluster.images import IMAGE, write_image
from tools.cluster.processes import ClusterError, Processes, answers, free_port, wait_until

__all__ = ["ADDRESS", "NODE", "Node", "missing", "remove", "sweep"]

NODE = "node-1"
_PODS = "10.96.77"
ADDRESS = f"{_PODS}.1"
"""Where pods reach this machine."""
BRIDGE = "trainwarden0"
_DNS = f"{SERVICES}.10"
_PLUGINS = Path("/usr/lib/cni")
_GPUS = 8


def missing() -> str:
    """What this machine lacks for a node; empty when it can have one.

    What a cluster has left that ended without being stopped, as when the machine was reset, is no hindrance: it is
    swept away before the next one starts.
    """
    if sys.platform != "linux":
        return "a node needs Linux"
    if os.geteuid() != 0:
        return "a node needs root"
    lacking = [name for name in ("containerd", "runc", "iptables", "busybox") if shutil.which(name) is None]
    if not (_PLUGINS / "bridge").exists():
        lacking.append("containernetworking-plugins")
    if lacking:
        return f"a node needs Debian's packages of {', '.join(lacking)}"
    return f"the bridge {BRIDGE} is there: another cluster has the node ({_owner()})" if _is_used() else ""


def sweep() -> None:
    """Take away what a cluster has left here that ended without being stopped."""
    if _has_bridge() and not _is_used():
        owner = _owner()
        if owner is not None:
            remove(owner, Processes(owner / "logs"))
        _ip("link", "delete", BRIDGE, check=False)


class Node:
    """Runs pods of a control plane.

    Args:
        plane: That it belongs to.
        programs: Where the binaries are.
        processes: That they run among.
    """

    def __init__(self, plane: ControlPlane, programs: Binaries, processes: Processes) -> None:
        self._plane, self._programs, self._processes = plane, programs, processes
        self._folder = plane.folder / "node"

    def network(self) -> None:
        """Make the bridge; the API server is told its address, so this comes first."""
        self._folder.mkdir()
        sweep()
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("link", "set", BRIDGE, "alias", str(self._plane.folder))
        _ip("address", "add", f"{ADDRESS}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")

    def start(self) -> None:
        """Start it all, and wait until the node is ready.

        Raises:
            ClusterError: A part does not come up.
        """
        self._start_containerd()
        self._start_kubelet()
        self._start_scheduler_and_proxy()
        self._start_dns()
        kubectl = self._plane.kubectl
        wait_until(lambda: f"{NODE}=True" in self._ready(), "the node is ready")
        patch = [{"op": "add", "path": "/status/capacity/nvidia.com~1gpu", "value": str(_GPUS)}]
        kubectl.run("patch", "node", NODE, "--subresource=status", "--type=json", "-p", json.dumps(patch))

    def _ready(self) -> str:
        path = '{range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}'
        return self._plane.kubectl.run("get", "nodes", "-o", f"jsonpath={path}", check=False)

    def _start_containerd(self) -> None:
        folder = self._folder
        network = folder / "cni"
        network.mkdir()
        bridge = {
            "cniVersion": "0.4.0",
            "name": "trainwarden",
            "plugins": [
                {
                    "type": "bridge",
                    "bridge": BRIDGE,
                    "isGateway": True,
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "dataDir": str(folder / "addresses"),
                        "ranges": [[{"subnet": f"{_PODS}.0/24", "rangeStart": f"{_PODS}.10"}]],
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                },
                {"type": "loopback"},
            ],
        }
        (network / "10-trainwarden.conflist").write_text(json.dumps(bridge))
        config = folder / "containerd.toml"
        config.write_text(
            f"""version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{IMAGE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_PLUGINS}"
    conf_dir = "{network}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{folder}/opt"
"""
        )
        self._processes.start("containerd", ["containerd", "--config", config])
        self._processes.need("containerd", lambda: _answers(folder), "ready")
        archive = write_image(folder / "image.tar")
        _ctr(folder, "-n", "k8s.io", "images", "import", str(archive))

    def _start_kubelet(self) -> None:
        folder = self._folder
        certificate, key = self._plane.certificates.server("kubelet", ADDRESS, NODE)
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._plane.certificates.authority)},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "clusterDNS": [_DNS],
            "clusterDomain": "cluster.local",
            "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
            "enforceNodeAllocatable": [],
            "evictionHard": {"nodefs.available": "1%", "imagefs.available": "1%", "memory.available": "50Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "healthzPort": 0,
            "podLogsDir": str(folder / "pod-logs"),
            "readOnlyPort": 0,
            "registerNode": True,
            "resolvConf": "",
            "syncFrequency": "10s",
            "tlsCertFile": str(certificate),
            "tlsPrivateKeyFile": str(key),
            "volumePluginDir": str(folder / "volume-plugins"),
        }
        path = folder / "kubelet.yaml"
        path.write_text(yaml.safe_dump(config))
        account = self._plane.component(f"node:{NODE}", "system:nodes")
        self._processes.start(
            "kubelet",
            [
                self._programs.path("kubelet"),
                f"--config={path}",
                f"--kubeconfig={account}",
                f"--root-dir={folder / 'kubelet'}",
                f"--hostname-override={NODE}",
                f"--node-ip={ADDRESS}",
            ],
        )

    def _start_scheduler_and_proxy(self) -> None:
        self._plane.start_scheduler()
        self._plane.kubectl.run(
            "create",
            "clusterrolebinding",
            "kube-proxy",
            "--clusterrole=system:node-proxier",
            "--user=system:kube-proxy",
        )
        health = free_port()
        self._processes.start(
            "kube-proxy",
            [
                self._programs.path("kube-proxy"),
                f"--kubeconfig={self._plane.component('kube-proxy')}",
                "--proxy-mode=iptables",
                "--masquerade-all",  # pods share one bridge, past which answers of a Service would go
                "--conntrack-max-per-core=0",
                f"--hostname-override={NODE}",
                f"--cluster-cidr={_PODS}.0/24",
                f"--healthz-bind-address={ADDRESS}:{health}",
                f"--metrics-bind-address={ADDRESS}:{free_port()}",
            ],
        )
        self._processes.need("kube-proxy", lambda: answers(health, ADDRESS), "answering")

    def _start_dns(self) -> None:
        kubectl = self._plane.kubectl
        account = self._plane.kubeconfig("dns", certificate=self._plane.certificates.client("dns", "dns"))
        rule = {"apiGroups": ["", "discovery.k8s.io"], "resources": ["*"], "verbs": ["list", "watch", "get"]}
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "dns"}}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "kube-dns", "namespace": "kube-system"},
            "spec": {
                "clusterIP": _DNS,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        }
        slices = {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": "kube-dns",
                "namespace": "kube-system",
                "labels": {"kubernetes.io/service-name": "kube-dns"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [ADDRESS], "conditions": {"ready": True}}],
            "ports": [
                {"name": "dns", "port": 53, "protocol": "UDP"},
                {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            ],
        }
        kubectl.apply([{**role, "rules": [rule]}, service, slices])
        kubectl.run("create", "clusterrolebinding", "dns", "--clusterrole=dns", "--user=dns")
        corefile = self._folder / "Corefile"
        corefile.write_text(
            f".:53 {{\n  bind {ADDRESS}\n  errors\n"
            f"  kubernetes cluster.local {{\n    kubeconfig {account}\n    pods insecure\n    ttl 1\n  }}\n}}\n"
        )
        self._processes.start("coredns", [self._programs.path("coredns"), "-conf", corefile])
        self._processes.need("coredns", lambda: answers(53, ADDRESS), "answering")


def remove(folder: Path, processes: Processes) -> None:
    """Take down what a node leaves when its programs have ended: containers, mounts, networks, rules, cgroups.

    Args:
        folder: Of the cluster.
        processes: Its programs; containerd still runs.
    """
    node = folder / "node"
    if not node.exists():
        return  # this cluster has none; the bridge is another's
    processes.stop("kubelet")
    spaces = _network_spaces(node)
    _end_containers(node)
    processes.stop("containerd")
    _unmount(str(folder))
    for space in spaces:
        _run("umount", space, check=False)
        Path(space).unlink(missing_ok=True)
    processes.stop("kube-proxy")
    kube_proxy = processes.command("kube-proxy")
    if kube_proxy:
        _run(kube_proxy[0], "--cleanup", check=False)
    _ip("link", "delete", BRIDGE, check=False)
    _remove_cgroups()


def _end_containers(node: Path) -> None:
    for task in _ctr(node, "-n", "k8s.io", "tasks", "list", "-q", check=False).split():
        _ctr(node, "-n", "k8s.io", "tasks", "kill", "-s", "SIGKILL", "-a", task, check=False)
    time.sleep(0.5)
    for task in _ctr(node, "-n", "k8s.io", "tasks", "list", "-q", check=False).split():
        _ctr(node, "-n", "k8s.io", "tasks", "delete", "-f", task, check=False)
    for shim in _shims(node):
        with contextlib.suppress(ProcessLookupError):  # it ends by itself once its task is deleted
            os.kill(shim, signal.SIGKILL)


def _shims(node: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if b"containerd-shim" in line and str(node).encode() in line:
            found.append(int(path.parent.name))
    return found


def _network_spaces(node: Path) -> list[str]:
    """Network namespaces that the node's pods have, as CNI's addresses say."""
    found = []
    text = _ctr(node, "-n", "k8s.io", "containers", "list", "-q", check=False)
    for container in text.split():
        try:
            told = json.loads(_ctr(node, "-n", "k8s.io", "containers", "info", container, check=False))
        except ValueError:
            continue
        for space in told.get("Spec", {}).get("linux", {}).get("namespaces", []):
            path = space.get("path", "")
            if space["type"] == "network" and "/netns/" in path and path not in found:
                found.append(path)
    return found


def _unmount(under: str) -> None:
    for _ in range(3):
        mounts = [line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()]
        inside = [mount for mount in reversed(mounts) if mount.startswith(f"{under}/")]
        if not inside:
            return
        for mount in inside:
            _run("umount", "--lazy", mount, check=False)


def _remove_cgroups() -> None:
    for pods in Path("/sys/fs/cgroup").glob("*/kubepods"):
        for folder, _, _ in os.walk(pods, topdown=False):
            try:
                Path(folder).rmdir()
            except OSError:
                continue


def _answers(node: Path) -> bool:
    return bool(_ctr(node, "version", check=False))


def _has_bridge() -> bool:
    return Path(f"/sys/class/net/{BRIDGE}").exists()


def _owner() -> Path | None:
    """The folder of the cluster that has made the bridge."""
    told = Path(f"/sys/class/net/{BRIDGE}/ifalias").read_text().strip() if _has_bridge() else ""
    return Path(told) if told else None


def _is_used() -> bool:
    """Whether a program of the cluster that has made the bridge still runs."""
    owner = _owner()
    if owner is None:
        return False
    return Processes(owner / "logs").any_alive


def _ctr(node: Path, *arguments: str, check: bool = True) -> str:
    return _run("ctr", "--address", str(node / "containerd.sock"), *arguments, check=check)


def _ip(*arguments: str, check: bool = True) -> None:
    _run("ip", *arguments, check=check)


def _run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and check:
        raise ClusterError(f"{' '.join(command)} failed: {done.stderr.strip()}")
    return done.stdout if done.returncode == 0 else ""
