"""What one engine takes: reports per second, milliseconds from report to decision, memory per run.

A nats-server of its own, a publisher in another process, 200 runs under 3 policies of 4 rules each, C++ CEL engine.
"Reports per second" counts from the socket to judged, over the processor time of the engine's process, and over the
clock while the publisher shares the machine. "Latency" is from publishing a loss that makes a rule fire to the decision
on the stream, at 1,000 reports per second. "Memory" is the growth of the process for runs of 8 metrics.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import nats

from trainwarden.controller.bus import Bus, BusError, Entry, Reading
from trainwarden.controller.cancelling import end_all
from trainwarden.controller.engine import Engine
from trainwarden.controller.payloads import decode
from trainwarden.controller.publishing import publish_facts, publish_policy
from trainwarden.controller.streams import LOCAL, ensure_streams
from trainwarden.policies.decision import Decision
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.loading import policy_from_body
from trainwarden.policies.run import RunState
from trainwarden.reporters.wire import Report, encode

RUNS = 200
REPORTS = 60_000
PACED_SECONDS = 8
PACE = 1_000
POLICIES = {
    "guard": [
        "metrics.loss > 50.0",
        "nonFinite('loss')",
        "progress.sinceStep > duration('30m')",
        "metrics.grad_norm > 1000.0",
    ],
    "learning": [
        "plateau('loss', duration('2h'))",
        "divergence('loss', duration('30m'))",
        "spike('loss', duration('30m'))",
        "progress.percent > 10.0 && plateau('eval_loss', duration('6h'))",
    ],
    "budget": [
        "progress.eta > duration('48h')",
        "checkpoint.age > duration('4h')",
        "job.runningFor > duration('72h')",
        "metrics.learning_rate < 0.0 && progress.step > 100",
    ],
}
NAMES = ("loss", "grad_norm", "learning_rate", "epoch", "tokens", "accuracy", "mem", "eval_loss")


@contextlib.contextmanager
def nats_server(folder: str) -> Iterator[str]:
    """A server with JetStream, and its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("nats-server")
    command = [str(program), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", folder]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"nats://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


async def connected(url: str) -> Bus:
    """A connection to a server that has just been started."""
    for _ in range(100):
        with contextlib.suppress(BusError):
            return await Bus.connect(url)
        await asyncio.sleep(0.05)
    raise TimeoutError(url)


def report(run: int, seq: int, *, loss: float | None = None) -> bytes:
    """A report of 8 metrics."""
    usual = 2.0 + 3.0 / (seq + 1) + 0.01 * ((seq * 7919 + run) % 17)
    values = dict.fromkeys(NAMES, 1.0 + seq % 7) | {"loss": usual if loss is None else loss, "learning_rate": 5e-5}
    message = Report(f"run-{run}", seq, time.time(), f"pod-{run}", "train", seq + 1, total=1_000_000, metrics=values)
    return encode(message)


async def publish(url: str, count: int, pace: float, first: int) -> None:
    """Publish reports of all runs in turn, `pace` per second, or as fast as the server stores them."""
    client = await nats.connect(url)
    began, sent = time.perf_counter(), 0
    while sent < count:
        until = count if not pace else min(count, int((time.perf_counter() - began) * pace) + 1)
        while sent < until:
            run, seq = sent % RUNS, first + sent // RUNS
            await client.publish(f"tw.report.bench.job-{run}", report(run, seq))
            sent += 1
            if sent % 500 == 0:
                await client.flush()
        await asyncio.sleep(0.001)
    await client.flush()
    await client.close()


def publisher(url: str, count: int, pace: float, first: int) -> None:
    """The publisher's process."""
    asyncio.run(publish(url, count, pace, first))


async def prepare(bus: Bus) -> None:
    """Streams, policies, facts."""
    await ensure_streams(bus, LOCAL)
    for name, rules in POLICIES.items():
        body = {
            "apiVersion": "trainwarden.dev/v1alpha1",
            "kind": "TrainingPolicy",
            "metadata": {"name": name, "namespace": "bench", "uid": name, "generation": 1},
            "spec": {
                "selector": {},
                "rules": [{"name": f"rule-{number}", "when": when} for number, when in enumerate(rules)],
            },
        }
        await publish_policy(bus, policy_from_body(body))
    for run in range(RUNS):
        await publish_facts(bus, facts(run))


def facts(run: int) -> RunFacts:
    """Facts of a job that runs."""
    now = datetime.now(UTC)
    return RunFacts(
        "bench", f"job-{run}", f"u-{run}", JobPhase.RUNNING, now, now, "a", attempt_started_at=now, ready=True
    )


@contextlib.asynccontextmanager
async def running(bus: Bus) -> AsyncIterator[Engine]:
    """An engine."""
    engine = Engine(bus, cel="cpp")
    task = asyncio.create_task(engine.run())
    await engine.ready.wait()
    try:
        yield engine
    finally:
        await end_all([task])


def judged(engine: Engine) -> int:
    """Sequence up to which reports were taken."""
    return max(job.seen for job in engine._jobs.values())


async def measure_throughput(url: str, bus: Bus) -> tuple[float, float]:
    """Reports per second of processor time, and of the clock, live."""
    async with running(bus) as engine:
        process = multiprocessing.get_context("spawn").Process(target=publisher, args=(url, REPORTS, 0, 0))
        process.start()
        before = judged(engine)
        while judged(engine) < before + 1000:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        first, began, cpu = judged(engine), time.perf_counter(), time.process_time()
        while judged(engine) < before + REPORTS - 10:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        count = judged(engine) - first
        answer = count / (time.process_time() - cpu), count / (time.perf_counter() - began)
        process.join()
    return answer


async def measure_latency(url: str, bus: Bus) -> list[float]:
    """Seconds from publishing a loss that fires a rule to its decision on the stream."""
    heard: dict[str, float] = {}

    def take(entry: Entry) -> None:
        decision = decode(entry.data, Decision)
        if decision.verdict == "Firing" and decision.policy.name == "guard":
            heard.setdefault(decision.run.job, time.perf_counter())

    first = REPORTS // RUNS
    delays: list[float] = []
    async with running(bus):
        reading = asyncio.create_task(Reading(bus, "TW_DECISIONS", take=take).run())
        count = PACE * PACED_SECONDS
        process = multiprocessing.get_context("spawn").Process(target=publisher, args=(url, count, PACE, first))
        process.start()
        await asyncio.sleep(2)
        heard.clear()
        for run in range(RUNS):
            sent = time.perf_counter()
            job = f"job-{run}"
            await bus.publish(f"tw.report.bench.{job}", report(run, 5_000_000, loss=99.0))
            while job not in heard and time.perf_counter() - sent < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.0005)
            delays.append(heard.get(job, sent + 2) - sent)
        process.join()
        await end_all([reading])
    return delays


def measure_memory() -> float:
    """KiB per run with 8 metrics and a full history."""
    from trainwarden.controller.decoding import decode_report

    gc.collect()
    before = rss()
    states = []
    for run in range(RUNS):
        state = RunState(facts(run))
        at = time.time()
        for seq in range(1500):
            state.observe(decode_report(report(run, seq)), datetime.fromtimestamp(at + 10 * seq, UTC))
        states.append(state)
    gc.collect()
    return (rss() - before) / RUNS / 1024


def rss() -> int:
    """Bytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1]) if Path("/proc/self/statm").exists() else 0
    return pages * os.sysconf("SC_PAGE_SIZE") if pages else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


async def measure() -> None:
    """Print the table."""
    memory = measure_memory()
    with TemporaryDirectory() as folder, nats_server(folder) as url:
        bus = await connected(url)
        await prepare(bus)
        per_core, by_clock = await measure_throughput(url, bus)
        delays = sorted(await measure_latency(url, bus))
        await bus.close()
    p99 = delays[int(len(delays) * 0.99)]
    print("| what | measured |")
    print("|---|---|")
    print(f"| reports per second of one core, {RUNS} runs, 12 rules each | {per_core:,.0f} |")
    print(f"| the same by the clock, publisher and server on the same machine | {by_clock:,.0f} |")
    print(f"| report to decision at {PACE:,} reports/s, p50 | {statistics.median(delays) * 1e3:.1f} ms |")
    print(f"| report to decision at {PACE:,} reports/s, p99 | {p99 * 1e3:.1f} ms |")
    print(f"| memory of a run with 8 metrics, 1,500 reports | {memory:.0f} KiB |")


if __name__ == "__main__":
    if "--profile" in sys.argv:
        import cProfile
        import pstats

        with cProfile.Profile() as profile:
            asyncio.run(measure())
        pstats.Stats(profile).sort_stats("tottime").print_stats(35)
    else:
        asyncio.run(measure())
