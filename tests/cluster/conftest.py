"""One real cluster for all tests here: with a node where the machine can have one, else the control plane alone.

With KUBECONFIG set it is the one that this leads to, such as kind; what needs our node is skipped there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import CI, started
from tests.cluster.world import World
from tools.cluster.cluster import Cluster, attach
from tools.cluster.existing import joined
from tools.cluster.node import missing
from tools.cluster.processes import ClusterError


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here starts programs, and is left out by `make quick`."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker("slow")
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A real cluster with trainwarden beside it; one that runs already, when its folder is given."""
    if running := os.environ.get("TRAINWARDEN_CLUSTER"):
        yield attach(Path(running))
        return
    if existing := os.environ.get("KUBECONFIG"):
        folder = Path(tempfile.mkdtemp(prefix="tw-"))
        try:
            with joined(Path(existing), folder / "c") as there:
                yield there
        except ClusterError as error:
            pytest.fail(str(error))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    lacking = missing()
    if lacking and CI:
        pytest.fail(f"CI must have a node: {lacking}")
    with started(node=not lacking) as made:
        yield made


@pytest.fixture
def world(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[World]:
    """A namespace of the test's own."""
    made = World(cluster, request.node.name)
    yield made
    made.remove()


@pytest.fixture
def node(cluster: Cluster) -> None:
    """Skip where pods can't run."""
    if cluster.node is None:
        existing = os.environ.get("KUBECONFIG")
        pytest.skip("pods of an existing cluster don't have this machine's Python" if existing else missing())
