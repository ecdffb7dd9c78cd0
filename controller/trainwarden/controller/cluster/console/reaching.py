"""Reads and writes the cluster's objects with the caller's own rights, and says in sentences what went wrong."""

from __future__ import annotations

import difflib
import json
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
from lightkube import ApiError, Client
from lightkube.core.exceptions import ConfigError
from lightkube.types import PatchType

from trainwarden.controller.cluster.console.errors import ConsoleError
from trainwarden.controller.cluster.console.kubeconfig import config_of
from trainwarden.controller.cluster.console.selectors import Selector
from trainwarden.controller.cluster.resources import (
    ClusterTrainingPolicy,
    Event,
    Namespace,
    TrainingPolicy,
    TrainingRun,
    TrainJob,
)
from trainwarden.controller.exit_codes import ExitCode

__all__ = ["ALL", "WATCH_SECONDS", "Cluster", "Object", "connect"]

Object = dict[str, Any]

ALL = "*"
"""Namespace that stands for all of them."""
_PAGE = 500
WATCH_SECONDS = 60
"""How long one watch goes on, so that a connection that died silently is noticed."""
_CONFLICT, _NOT_FOUND = 409, 404
_PASSING = (410, 429)
_GROUPS = {"trainjobs": "trainer.kubeflow.org", "events": "", "namespaces": ""}


def connect(kubeconfig: Path | None, context: str | None, namespace: str | None) -> Cluster:
    """A cluster as the caller's kubeconfig has it.

    Args:
        kubeconfig: A file that was asked for.
        context: Name of a context that was asked for.
        namespace: That was asked for; None for the context's own, "*" for all.

    Raises:
        ConsoleError: There is no kubeconfig, or it can't be used.
    """
    config = config_of(kubeconfig, context)
    try:
        client = Client(config=config, field_manager="trainwarden-cli", lazy=True)
    except (ConfigError, OSError, ssl.SSLError, ValueError) as error:
        raise ConsoleError(f"context {config.context_name!r} can't be used: {error}") from error
    return Cluster(client, namespace or config.namespace, config.cluster.server)


class Cluster:
    """One cluster, and a namespace in it.

    Args:
        client: With the caller's rights.
        namespace: Where names are looked up; "*" is all of them.
        server: Address of the API server, for messages.
    """

    def __init__(self, client: Client, namespace: str, server: str) -> None:
        self._client: Any = client  # its overloads know no generic resources
        self.namespace, self._server = namespace, server

    def close(self) -> None:
        """Let go of the connections."""
        self._client.close()

    def runs(self, labels: Selector | None = None) -> tuple[list[Object], str]:
        """TrainingRuns by namespace and name, and the version that they were listed at."""
        with self._said("list trainingruns", self.namespace):
            listing = self._client.list(TrainingRun, namespace=self.namespace, labels=labels or None, chunk_size=_PAGE)
            found = [dict(each) for each in listing]
            return sorted(found, key=_place), str(listing.resourceVersion)

    def watch_runs(self, version: str, labels: Selector | None = None) -> Generator[tuple[str, Object], None, None]:
        """Changes of TrainingRuns: ADDED, MODIFIED or DELETED, and the object. Ends after a minute.

        Raises:
            ConsoleError: It broke; listing again helps, but where it is forbidden.
        """
        with self._said("watch trainingruns", self.namespace):
            for event, item in self._client.watch(
                TrainingRun,
                namespace=self.namespace,
                labels=labels or None,
                resource_version=version,
                server_timeout=WATCH_SECONDS,
            ):
                yield event, dict(item)

    def run(self, name: str) -> Object:
        """The TrainingRun of a job.

        Raises:
            ConsoleError: There is none; the text names the nearest one.
        """
        with self._said(f"get trainingruns/{name}", self.namespace):
            try:
                return dict(self._client.get(TrainingRun, name, namespace=self.namespace))
            except ApiError as error:
                if not _no_such_object(error):
                    raise
        raise ConsoleError(self._no_run(name))

    def trainjob(self, name: str) -> Object:
        """A TrainJob.

        Raises:
            ConsoleError: There is none; the text names the nearest one.
        """
        with self._said(f"get trainjobs/{name}", self.namespace, what="Kubeflow Trainer"):
            try:
                return dict(self._client.get(TrainJob, name, namespace=self.namespace))
            except ApiError as error:
                if not _no_such_object(error):
                    raise
        raise ConsoleError(f"no TrainJob {self.namespace}/{name}{self._elsewhere(TrainJob, name)}")

    def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace."""
        with self._said(f"get namespaces/{name}", ""):
            return dict((self._client.get(Namespace, name)["metadata"].get("labels")) or {})

    def policies(self, *, everywhere: bool) -> list[Object]:
        """The ClusterTrainingPolicies, or the TrainingPolicies of the namespace."""
        kind, where = (ClusterTrainingPolicy, "") if everywhere else (TrainingPolicy, self.namespace)
        with self._said(f"list {'clustertrainingpolicies' if everywhere else 'trainingpolicies'}", where):
            scope = {} if everywhere else {"namespace": self.namespace}
            found = [dict(each) for each in self._client.list(kind, chunk_size=_PAGE, **scope)]
        for each in found:  # items of a list don't say what they are
            each.setdefault("kind", kind.__name__)
            each.setdefault("apiVersion", "trainwarden.dev/v1alpha1")
        return sorted(found, key=_place)

    def events(self, uid: str) -> list[Object]:
        """Events about the object of a UID."""
        with self._said("list events", self.namespace):
            fields = {"involvedObject.uid": uid}
            listing = self._client.list(Event, namespace=self.namespace, fields=fields, chunk_size=_PAGE)
            return [dict(each) for each in listing]

    def annotate(self, kind: type[Any], item: Object, annotations: Mapping[str, str | None]) -> Object | None:
        """Set annotations of an object as it was read; None takes one away.

        Returns:
            The object as it is now; None when it was changed by somebody since it was read.

        Raises:
            ConsoleError: It was refused.
        """
        metadata = item["metadata"]
        fence = {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
        body = {"metadata": {**fence, "annotations": dict(annotations)}}
        verb = f"patch {kind.__name__.lower()}s/{metadata['name']}"
        with self._said(verb, metadata["namespace"]):
            try:
                done = self._client.patch(
                    kind, metadata["name"], body, namespace=metadata["namespace"], patch_type=PatchType.MERGE
                )
            except ApiError as error:
                if error.status.code == _CONFLICT:
                    return None
                raise
        return dict(done)

    # ------------------------------------------------------------------ what went wrong

    def _no_run(self, name: str) -> str:
        if self._exists(TrainJob, name):
            made = "trainwarden has not made its TrainingRun yet; if it stays so, the operator does not run"
            return f"the TrainJob {self.namespace}/{name} is there, but {made}"
        return f"no TrainingRun {self.namespace}/{name}{self._elsewhere(TrainingRun, name)}"

    def _exists(self, kind: type[Any], name: str) -> bool:
        try:
            self._client.get(kind, name, namespace=self.namespace)
        except (ApiError, httpx2.HTTPError):
            return False
        return True

    def _elsewhere(self, kind: type[Any], name: str) -> str:
        """Where else the name is, or which name is nearest; empty when neither is known or may be read."""
        try:
            same = self._client.list(kind, namespace=ALL, fields={"metadata.name": name}, chunk_size=_PAGE)
            places = sorted(str(each["metadata"]["namespace"]) for each in same)
        except (ApiError, httpx2.HTTPError):
            places = []
        if places:
            others = f", {', '.join(places[1:5])}" if len(places) > 1 else ""
            return f"; there is one in {places[0]}{others}: add -n {places[0]}"
        try:
            names = [str(each["metadata"]["name"]) for each in self._client.list(kind, namespace=self.namespace)]
        except (ApiError, httpx2.HTTPError):
            return ""
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        if near:
            return f"; did you mean {near[0]}?"
        return "; `trainwarden jobs -A` lists all" if names else f"; the namespace {self.namespace} has none"

    @contextmanager
    def _said(self, action: str, namespace: str, what: str = "trainwarden") -> Iterator[None]:
        """Turn faults into sentences."""
        try:
            yield
        except ApiError as error:
            passing = error.status.code in _PASSING or (error.status.code or 0) >= 500
            said = self._sentence(error, action, namespace, what)
            raise ConsoleError(said, ExitCode.FAILED, passing=passing) from error
        except (ConfigError, OSError, json.JSONDecodeError) as error:  # the caller's login helper
            raise ConsoleError(f"the kubeconfig's login failed: {error}", ExitCode.FAILED) from error
        except httpx2.HTTPStatusError as error:
            code, kind = error.response.status_code, _kind_of(action)
            text = f"{self._server} answers {code} where Kubernetes would be; look at the kubeconfig's server"
            if code == _NOT_FOUND:  # how it answers for a group that no CRD has
                text = f"{what} is not installed there: {self._server} knows no {kind}"
            raise ConsoleError(text, ExitCode.FAILED, passing=code >= 500) from error
        except httpx2.HTTPError as error:
            why = str(error) or type(error).__name__
            raise ConsoleError(f"{self._server} can't be reached: {why}", ExitCode.FAILED, passing=True) from error

    def _sentence(self, error: ApiError, action: str, namespace: str, what: str) -> str:
        where = " in all namespaces" if namespace == ALL else f" in namespace {namespace}" if namespace else ""
        kind = _kind_of(action)
        match error.status.code:
            case 401:
                return f"{self._server} does not know you; log in again, or give another --context"
            case 403:
                verb = action.partition(" ")[0]
                group = _GROUPS.get(kind, "trainwarden.dev")
                right = f"{verb} on {kind}{f' of {group}' if group else ''}"
                return f"you may not {action}{where}; ask your admin for the right to {right} ({error.status.message})"
            case 404 if not _no_such_object(error):
                return f"{what} is not installed there: {self._server} knows no {kind}"
            case _:
                return f"{action}{where} was refused: {error.status.message}"


def _kind_of(action: str) -> str:
    """`trainingruns` of `get trainingruns/flat`."""
    return action.partition(" ")[2].partition("/")[0]


def _no_such_object(error: ApiError) -> bool:
    """Whether the object is missing, and not its kind."""
    details = error.status.details
    return error.status.code == _NOT_FOUND and details is not None and bool(details.name)


def _place(item: Object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace", "")), str(item["metadata"]["name"])
