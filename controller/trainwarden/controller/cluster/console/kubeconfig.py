"""Finds the caller's kubeconfig as kubectl does: --kubeconfig, all files of KUBECONFIG, ~/.kube/config, a pod's own."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import yaml
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.core.exceptions import ConfigError

from trainwarden.controller.cluster.console.errors import ConsoleError

__all__ = ["config_of", "has_config"]

_HOME = Path(".kube") / "config"
_FILES = {
    "cluster": ("certificate-authority",),
    "user": ("client-certificate", "client-key", "tokenFile"),
}
_NEWEST_EXEC, _SPOKEN_EXEC = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"


def has_config(environment: Mapping[str, str]) -> bool:
    """Whether the caller has a kubeconfig, or runs in a pod."""
    return any(path.is_file() for path in _places(environment)) or "KUBERNETES_SERVICE_HOST" in environment


def config_of(given: Path | None, context: str | None, environment: Mapping[str, str] = os.environ) -> SingleConfig:
    """The cluster, user and namespace to work with.

    Args:
        given: A file that was asked for.
        context: Name of the context; None for the current one.
        environment: Where KUBECONFIG and HOME stand.

    Raises:
        ConsoleError: There is none, or it can't be used.
    """
    places = [given] if given is not None else _places(environment)
    found = [path for path in places if path.is_file()]
    if not found:
        if given is None and "KUBERNETES_SERVICE_HOST" in environment:
            return _in_pod(context)
        looked = ", ".join(map(str, places))
        raise ConsoleError(f"no kubeconfig at {looked}; set KUBECONFIG, or give --kubeconfig FILE")
    merged = _merged(found)
    names = ", ".join(str(path) for path in found)
    wanted = context if context is not None else merged["current-context"]
    known = sorted(each["name"] for each in merged["contexts"])
    if not wanted:
        raise ConsoleError(f"{names} has no current context; give --context, one of: {', '.join(known) or 'none'}")
    if wanted not in known:
        raise ConsoleError(f"{names} has no context {wanted!r}; known are: {', '.join(known) or 'none'}")
    try:
        config = KubeConfig.from_dict(merged, fname=found[0]).get(wanted)
    except KeyError as error:
        raise ConsoleError(f"{names}: context {wanted!r} names {error}, which is not there") from error
    except (ConfigError, msgspec.ValidationError, TypeError, ValueError) as error:
        raise ConsoleError(f"{names} can't be used: {error}") from error
    assert config is not None  # noqa: S101 - only without a context
    return config


def _places(environment: Mapping[str, str]) -> list[Path]:
    listed = [Path(each).expanduser() for each in environment.get("KUBECONFIG", "").split(os.pathsep) if each]
    if listed:
        return listed
    home = environment.get("HOME")
    return [Path(home) / _HOME] if home else []


def _in_pod(context: str | None) -> SingleConfig:
    try:
        config = KubeConfig.from_service_account().get(context)
    except (ConfigError, KeyError, OSError) as error:
        raise ConsoleError(f"no kubeconfig, and the pod's service account can't be used: {error}") from error
    assert config is not None  # noqa: S101 - only without a context
    return config


def _merged(paths: list[Path]) -> dict[str, Any]:
    """All files as one: of each name, and of the current context, the first one counts."""
    merged: dict[str, Any] = {"current-context": "", "clusters": [], "contexts": [], "users": []}
    for path in paths:
        try:
            content = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise ConsoleError(f"{path} can't be read: {_first_line(error)}") from error
        if not isinstance(content, dict):
            raise ConsoleError(f"{path} is not a kubeconfig; it holds no fields")
        merged["current-context"] = merged["current-context"] or content.get("current-context") or ""
        for kind in ("cluster", "context", "user"):
            listed = merged[f"{kind}s"]
            known = {each["name"] for each in listed}
            for each in content.get(f"{kind}s") or ():
                if not isinstance(each, dict) or not isinstance(each.get(kind) or {}, dict) or "name" not in each:
                    raise ConsoleError(f"{path} is not a kubeconfig; {kind}s is a list of objects with name and {kind}")
                if each["name"] not in known:
                    listed.append({"name": each["name"], kind: _placed(kind, each.get(kind) or {}, path.parent)})
    nobody = "nobody"
    for each in merged["contexts"]:
        if not each["context"].get("user"):  # lightkube must have one
            each["context"]["user"] = nobody
    return {**merged, "users": [*merged["users"], {"name": nobody, "user": {}}]}


def _placed(kind: str, fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    """The fields with whole paths: they are relative to the file that they stand in."""
    placed = dict(fields)
    for name in _FILES.get(kind, ()):
        if placed.get(name):
            placed[name] = str(folder.absolute() / placed[name])
    helper = placed.get("exec")
    if (
        isinstance(helper, dict) and helper.get("apiVersion") == _NEWEST_EXEC
    ):  # what is read of its answer is the same in both
        placed["exec"] = {**helper, "apiVersion": _SPOKEN_EXEC}
    return placed


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
