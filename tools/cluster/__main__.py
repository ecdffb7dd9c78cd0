"""`python -m tools.cluster up|down`: what `make cluster-up` and `make cluster-down` run."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tools.cluster.binaries import BuildError
from tools.cluster.cluster import Cluster, stop
from tools.cluster.node import missing
from tools.cluster.processes import ClusterError, Processes

FOLDER = Path(__file__).parents[2] / ".cluster"


def main() -> int:
    """Start or stop the laptop's cluster; gives the exit code."""
    if sys.argv[1:] not in (["up"], ["down"]):
        print("usage: python -m tools.cluster up|down", file=sys.stderr)
        return 2
    if sys.argv[1] == "down":
        stop(FOLDER)
        return 0
    if Processes(FOLDER / "logs").any_alive:
        print(f"a cluster is there already; its kubeconfig is\n{FOLDER}/admin.kubeconfig")
        return 0
    stop(FOLDER)  # what one has left that ended without being stopped
    plain = os.environ.get("CLUSTER") == "control-plane"
    lacking = "" if plain else missing()
    if lacking:
        print(f"without a node, pods stay Pending: {lacking}", file=sys.stderr)
    print("building what is not built yet; the first time takes some ten minutes", file=sys.stderr)
    try:
        Cluster(FOLDER, node=not plain and not lacking).up()
    except (ClusterError, BuildError) as error:
        print(f"the cluster can't be started: {error}", file=sys.stderr)
        stop(FOLDER)
        return 1
    print(f"NATS and the roles run beside it; logs are in {FOLDER}/logs", file=sys.stderr)
    print(FOLDER / "admin.kubeconfig")
    return 0


if __name__ == "__main__":
    sys.exit(main())
