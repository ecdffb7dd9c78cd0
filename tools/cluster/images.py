"""The one image of the node: busybox, and this machine's Python and libraries mounted into it, so nothing is pulled."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import sys
import sysconfig
import tarfile
from pathlib import Path
from typing import Any

__all__ = ["IMAGE", "host_mounts", "write_image"]

IMAGE = "docker.io/local/trainwarden-host:1"
"""Holds `sh` and the usual tools; as the pause image it sleeps."""


_APPLETS = ("sh", "cat", "echo", "env", "hostname", "id", "kill", "ls", "mkdir", "nslookup", "sleep", "test", "wget")


def write_image(path: Path) -> Path:
    """Write the image as an archive for `ctr images import`; gives its path."""
    busybox = shutil.which("busybox")
    if busybox is None:
        raise FileNotFoundError("busybox")
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev", "root", "run", "var", "usr", "lib", "lib64", "sbin"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(entry)
        _file(tar, "bin/busybox", Path(busybox).read_bytes(), 0o755)
        for applet in _APPLETS:
            entry = tarfile.TarInfo(f"bin/{applet}")
            entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(entry)
        _file(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n", 0o644)
        _file(tar, "etc/group", b"root:x:0:\n", 0o644)
    content = layer.getvalue()
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/bin:/usr/bin:/bin"],
            "Entrypoint": ["/bin/sh", "-c", "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(content).hexdigest()}"]},
        "history": [{"created_by": "trainwarden"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [IMAGE], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        _file(tar, "config.json", json.dumps(config).encode(), 0o644)
        _file(tar, "layer.tar", content, 0o644)
        _file(tar, "manifest.json", json.dumps(manifest).encode(), 0o644)
    return path


def host_mounts(*folders: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes and mounts with which a container runs this machine's Python, read-only.

    Args:
        folders: More that it reads, such as the sources.
    """
    needed = [Path("/usr"), Path("/lib"), Path("/lib64"), Path(sys.prefix), Path(sysconfig.get_config_var("prefix"))]
    paths: list[Path] = []
    for path in [*needed, *folders]:
        if path.exists() and not any(path.is_relative_to(known) and not known.is_symlink() for known in paths):
            paths.append(path)
    volumes, mounts = [], []
    for number, path in enumerate(paths):
        volumes.append({"name": f"host-{number}", "hostPath": {"path": str(path.resolve())}})
        mounts.append({"name": f"host-{number}", "mountPath": str(path), "readOnly": True})
    return volumes, mounts


def _file(tar: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    tar.addfile(entry, io.BytesIO(content))
