"""Measure how long a backtest of recorded runs takes, from the command to the answer.

    python -m benchmarks.backtest_speed CURVES… [--processes N] [--policy FILE]

Without `--policy`, a policy of six rules is used: plateau, divergence, nonFinite, spike, stall, throughputDrop.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POLICY = """
apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: six-rules}
spec:
  selector: {}
  variables:
  - name: watched
    expression: |-
      "validation/loss" in metrics ? "validation/loss" : "val_loss" in metrics ? "val_loss"
      : "validation/ctc_loss" in metrics ? "validation/ctc_loss" : "validation/ssim" in metrics
      ? "validation/ssim" : "loss"
  - {name: dense, expression: '"train_loss" in metrics ? "train_loss" : "loss"'}
  rules:
  - name: plateau
    when: plateau(variables.watched, duration("30m"))
    for: 1m
    actions: [{type: Notify}, {type: Suspend, after: 5m}]
  - {name: divergence, when: 'divergence(variables.dense, 500)', actions: [{type: Stop}]}
  - {name: nonFinite, when: nonFinite(variables.dense), actions: [{type: Notify}]}
  - {name: spike, when: 'spike(variables.dense, 500)'}
  - {name: stall, when: progress.sinceStep > duration("30m")}
  - {name: throughputDrop, when: 'throughputDrop(duration("10m"), 0.5)'}
"""


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("histories", nargs="+")
    arguments.add_argument("--processes", default="2")
    arguments.add_argument("--policy")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        policy = Path(folder) / "policy.yaml"
        policy.write_text(Path(given.policy).read_text() if given.policy else POLICY)
        command = [sys.executable, "-m", "trainwarden.controller.cli", "policy", "backtest", "--policy", str(policy)]
        command += ["--format", "json", "--quiet", "--processes", given.processes, *given.histories]
        began = time.monotonic()
        done = subprocess.run(command, check=True, capture_output=True)
        seconds = time.monotonic() - began
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    totals = json.loads(done.stdout)["totals"]
    print("| runs | reports | processes | seconds | seconds of CPU | reports a second | largest process, MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    print(
        f"| {totals['runs']:,} | {totals['reports']:,} | {given.processes} | {seconds:.1f} | "
        f"{used.ru_utime + used.ru_stime:.1f} | {totals['reports'] / seconds:,.0f} | {used.ru_maxrss / 1024:.0f} |"
    )


if __name__ == "__main__":
    main()
