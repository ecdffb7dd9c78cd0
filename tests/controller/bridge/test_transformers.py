"""Transformers' own KubeflowCallback, as it comes, reports through the bridge."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

pytest.importorskip("transformers")

from tests.controller.bridge.posting import Served
from tests.reporters.nats_server import eventually
from tests.reporters.tiny_gpt import At, trainer

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]  # what transformers warns of is theirs


async def test_an_unmodified_trainer_reports_through_the_bridge(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("good\n")
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_URL", served.url())
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_CA_CERT", str(served.authority.trust))
    monkeypatch.setenv("KUBEFLOW_TRAINER_SERVER_TOKEN", str(token))
    monkeypatch.delenv("DISABLE_KUBEFLOW_INTEGRATION", raising=False)
    # The callback posts at most every 5 seconds, so the fourth step has to last as long for its post to be due.
    slow = At(4, lambda: time.sleep(5.2))

    await asyncio.to_thread(lambda: trainer(tmp_path / "out", slow).train())
    await asyncio.to_thread(lambda: trainer(tmp_path / "out", max_steps=3).train())
    await eventually(lambda: not served.bridge.pending)

    runs = list(dict.fromkeys(report.run for report in served.reports))
    first = [report for report in served.reports if report.run == runs[0]]
    second = [report for report in served.reports if report.run == runs[1]]
    assert len(runs) == 2
    assert (first[0].phase, first[0].step, first[0].total) == ("init", 0, 6)
    assert [report.step for report in first if report.phase == "train"] == [4]
    assert {"loss", "grad_norm", "learning_rate"} <= set(first[1].metrics)
    assert "epoch" not in first[1].metrics
    assert (first[-1].phase, first[-1].step, first[-1].total) == ("done", 4, 6)
    assert "train_loss" in first[-1].metrics
    assert second[-1].metrics["loss"] > 0
    assert served.bridge.server.answers == {200: len(first) + len(second) + served.bridge.pending.dropped}
