"""Clusters that tests start for themselves, and what a machine lacks for one."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tools.cluster.binaries import BuildError
from tools.cluster.cluster import Cluster
from tools.cluster.keeper import kept
from tools.cluster.processes import ClusterError

__all__ = ["CI", "started"]

CI = os.environ.get("CI") == "true"
"""Nothing may be skipped."""


@contextmanager
def started(
    *, node: bool = False, kueue: bool = True, trainer: str = "", up: Callable[[Cluster], None] = Cluster.up
) -> Iterator[Cluster]:
    """A cluster of one's own, in a folder that is gone afterwards.

    Args:
        node: Whether it has a real node.
        kueue: Whether Kueue is installed.
        trainer: Version of Trainer; empty for the newest.
        up: Starts it.
    """
    if not CI and shutil.which("go") is None:
        pytest.skip("the cluster's programs are built with Go, which is not installed here")
    parent = Path(tempfile.mkdtemp(prefix="tw-"))
    try:
        with kept(parent / "c"):
            made = Cluster(parent / "c", node=node, kueue=kueue, trainer=trainer)
            up(made)
            yield made
    except (BuildError, ClusterError) as error:
        pytest.fail(str(error))
    finally:
        shutil.rmtree(parent, ignore_errors=True)
