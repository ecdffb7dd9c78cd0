"""One real cluster for all tests here: with a node where the machine can have one, else the control plane alone."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.world import World
from tools.cluster.binaries import BuildError
from tools.cluster.cluster import Cluster, attach, stop
from tools.cluster.node import missing
from tools.cluster.processes import ClusterError

CI = os.environ.get("CI") == "true"


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
    if not CI and shutil.which("go") is None:
        pytest.skip("the cluster's programs are built with Go, which is not installed here")
    lacking = missing()
    if lacking and CI:
        pytest.fail(f"CI must have a node: {lacking}")
    folder = Path(tempfile.mkdtemp(prefix="tw-")) / "c"
    try:
        made = Cluster(folder, node=not lacking)
        made.up()
    except (ClusterError, BuildError):
        if folder.exists():
            stop(folder)
        raise
    try:
        yield made
    finally:
        made.down()
        shutil.rmtree(folder.parent, ignore_errors=True)


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
        pytest.skip(missing())
