"""One real cluster for all tests here: with a node where the machine can have one, else the control plane alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cluster.starting import CI, started
from tests.cluster.world import World
from tools.cluster.cluster import Cluster, attach
from tools.cluster.node import missing


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
        pytest.skip(missing())
