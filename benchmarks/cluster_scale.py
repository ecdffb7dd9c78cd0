"""What the roles take with many TrainJobs: memory, processor time, API writes, and from a report to the suspension.

`python -m benchmarks.cluster_scale [JOBS]`: a control plane with the real Trainer and JobSet, pods by kwok, 4 a job,
and as many reporting runs, each reporting every 10 s. "Ready" is from the operator's start, with all jobs there, to its
first work. Writes are PATCHes of TrainingRuns' status that the API server counts over a minute without decisions.
"Suspension" is from publishing a loss that makes a rule fire to the watch event of the TrainJob's `spec.suspend`, for
the last fifth of the jobs, one every 100 ms.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import httpx2
import nats
from lightkube import AsyncClient, KubeConfig
from tools.cluster.binaries import binaries
from tools.cluster.cluster import Cluster
from tools.cluster.fakes import start_fakes
from tools.cluster.keeper import kept
from tools.cluster.processes import wait_until

from trainwarden.controller.cluster.resources import TrainJob
from trainwarden.reporters.wire import Report, encode, report_subject

_PODS = 4
_EVERY = 10.0  # seconds between two reports of a run
_MINUTE = 60.0
_ROLES = ("engine", "operator", "notifier")
_TICK = os.sysconf("SC_CLK_TCK")


def _used(pid: int) -> tuple[float, float]:
    """Processor seconds and MiB of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return (int(fields[11]) + int(fields[12])) / _TICK, pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def _objects(jobs: int) -> list[dict[str, Any]]:
    job = {
        "name": "node",
        "template": {
            "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "none"}]}}},
        },
    }
    runtime = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "ClusterTrainingRuntime",
        "metadata": {"name": "fake"},
        "spec": {"mlPolicy": {"numNodes": _PODS}, "template": {"spec": {"replicatedJobs": [job]}}},
    }
    policy = {
        "apiVersion": "trainwarden.dev/v1alpha1",
        "kind": "ClusterTrainingPolicy",
        "metadata": {"name": "high"},
        "spec": {
            "mode": "Enforce",
            "selector": {},
            "rules": [
                {"name": "high", "when": "metrics.loss > 100", "actions": [{"type": "Suspend", "checkpoint": "Skip"}]}
            ],
        },
    }
    return [
        runtime,
        policy,
        *(
            {
                "apiVersion": "trainer.kubeflow.org/v1alpha1",
                "kind": "TrainJob",
                "metadata": {"name": f"job-{number}", "namespace": "default"},
                "spec": {"runtimeRef": {"name": "fake"}, "trainer": {"numNodes": _PODS}},
            }
            for number in range(jobs)
        ),
    ]


class _Reports:
    """Reports of all runs."""

    def __init__(self, client: Any, jobs: int) -> None:
        self._client, self._jobs = client, jobs
        self._runs = [uuid.uuid4().hex for _ in range(jobs)]
        self._seqs = [0] * jobs
        self.losses = [1.0] * jobs

    async def say(self, number: int) -> None:
        """Report a run's loss, which is never quite the same."""
        seq = self._seqs[number]
        self._seqs[number] += 1
        report = Report(
            run=self._runs[number],
            seq=seq,
            ts=time.time(),
            pod=f"job-{number}-node-0-0",
            rank=0,
            world=_PODS,
            phase="train",
            step=seq * 100,
            total=1_000_000,
            metrics={"loss": self.losses[number] + seq / 1e6},
        )
        await self._client.publish(report_subject("default", f"job-{number}"), encode(report))

    async def keep_saying(self) -> None:
        while True:
            began = time.monotonic()
            for number in range(self._jobs):
                await self.say(number)
                if number % 50 == 49:
                    await asyncio.sleep(_EVERY / self._jobs * 50 * 0.8)
            await asyncio.sleep(max(0.0, _EVERY - (time.monotonic() - began)))


async def _suspensions(config: Path, reports: _Reports, jobs: int) -> list[float]:
    client: Any = AsyncClient(KubeConfig.from_file(config).get(), timeout=httpx2.Timeout(30))
    chosen = range(jobs - max(1, jobs // 5), jobs)
    asked: dict[str, float] = {}
    took: list[float] = []

    async def watch() -> None:
        async for event, job in client.watch(TrainJob, namespace="default"):
            name = job["metadata"]["name"]
            if event == "MODIFIED" and (job.get("spec") or {}).get("suspend") and name in asked:
                took.append(time.monotonic() - asked.pop(name))

    watching = asyncio.create_task(watch())
    await asyncio.sleep(2)
    for number in chosen:
        asked[f"job-{number}"] = time.monotonic()
        reports.losses[number] = 1000.0  # and stays so: of a rule that resolves at once nothing is done
        await reports.say(number)
        await asyncio.sleep(0.1)
    began = time.monotonic()
    while asked and time.monotonic() < began + _MINUTE:
        waited = time.monotonic() - began
        print(f"{waited:5.0f} s: {len(took)} jobs of {len(chosen)} suspended", file=sys.stderr, flush=True)
        await asyncio.sleep(2)
    watching.cancel()
    if asked:
        raise SystemExit(f"{len(asked)} of {len(chosen)} jobs were not suspended within a minute")
    return took


async def _measure(cluster: Cluster, jobs: int) -> None:
    product, processes = cluster.product, cluster.processes
    client = await nats.connect(product.nats_url, token=product.token_file.read_text())
    reports = _Reports(client, jobs)
    saying = asyncio.create_task(reports.keep_saying())
    began = time.monotonic()
    product.start_operator("--runs-per-hour=100000", webhooks=False)
    ready = time.monotonic() - began
    await asyncio.sleep(_MINUTE)  # every TrainingRun is written for the first time
    before = {role: _used(processes.pid(role)) for role in _ROLES}
    writes = _writes(cluster)
    await asyncio.sleep(_MINUTE)
    after = {role: _used(processes.pid(role)) for role in _ROLES}
    written = _writes(cluster) - writes
    took = sorted(await _suspensions(Path(cluster.kubectl.config), reports, jobs))
    saying.cancel()
    await client.close()
    print(f"| {jobs} TrainJobs of {_PODS} pods, {jobs / _EVERY:g} reports/s | |\n|---|---|")
    print(f"| operator ready after its start | {ready:.1f} s |")
    for role in _ROLES:
        cores = (after[role][0] - before[role][0]) / _MINUTE
        print(f"| {role} | {after[role][1]:.0f} MiB, {cores:.2f} cores |")
    print(
        f"| writes of TrainingRuns | {written / _MINUTE:.1f}/s, {written * 10 / _MINUTE / jobs:.2f} per run in 10 s |"
    )
    worst = took[min(len(took) - 1, int(len(took) * 0.99))]
    print(f"| report to suspension, of {len(took)} | median {statistics.median(took):.2f} s, p99 {worst:.2f} s |")


def _writes(cluster: Cluster) -> int:
    text = cluster.kubectl.run("get", "--raw", "/metrics")
    lines = (line for line in text.splitlines() if line.startswith("apiserver_request_total{"))
    counted = (
        float(line.rpartition(" ")[2])
        for line in lines
        if 'resource="trainingruns"' in line and 'subresource="status"' in line and 'verb="PATCH"' in line
    )
    return int(sum(counted))


def main() -> None:
    """Measure, and print a table."""
    jobs = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    with tempfile.TemporaryDirectory(prefix="tw-bench-") as parent:
        folder = Path(parent) / "c"
        with kept(folder):
            cluster = Cluster(folder, node=False, kueue=False)
            cluster.up(product=False)
            _begin(cluster, jobs)
            asyncio.run(_measure(cluster, jobs))


def _begin(cluster: Cluster, jobs: int) -> None:
    """Have all jobs run, and all roles but the operator."""
    nodes = max(1, jobs * _PODS // 1000)
    start_fakes(cluster.plane, binaries(), cluster.processes, nodes=nodes, pods_per_node=1100)
    cluster.product.install()
    cluster.product.start_nats()
    for role in ("engine", "notifier"):
        cluster.product.start_role(role)
    objects = _objects(jobs)
    for at in range(0, len(objects), 200):
        cluster.kubectl.apply(objects[at : at + 200])
    began = time.monotonic()

    def all_run() -> bool:
        running = _running(cluster)
        print(f"{time.monotonic() - began:5.0f} s: {running} pods of {jobs * _PODS} run", file=sys.stderr, flush=True)
        time.sleep(5)
        return running >= jobs * _PODS

    wait_until(all_run, "all pods run", within=3600)


def _running(cluster: Cluster) -> int:
    return cluster.kubectl.run("get", "pods", "--field-selector=status.phase=Running", "-o", "name").count("\n")


if __name__ == "__main__":
    main()
