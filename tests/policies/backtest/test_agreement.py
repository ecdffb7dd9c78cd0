"""A replay decides as the judge itself does when it is asked at each row and each second."""

import math
import random
from dataclasses import replace
from datetime import timedelta

import pytest
from tests.policies.backtest.test_replaying import SETTING, policy
from tests.policies.runs import T0, facts

from trainwarden.policies.backtest.recording import Row
from trainwarden.policies.backtest.replaying import replay
from trainwarden.policies.compiling import CompiledPolicy
from trainwarden.policies.decision import ActionState, Verdict
from trainwarden.policies.judge import judge
from trainwarden.policies.memory import RunMemory
from trainwarden.policies.run import RunState
from trainwarden.reporters.wire import Report

RULES = """
- {name: plateau, when: 'plateau("loss", 60)', for: 40s, actions: [{type: Notify}, {type: Suspend, after: 90s}]}
- {name: divergence, when: 'divergence("loss", 40)', keepFiringFor: 30s, actions: [{type: Stop}]}
- {name: nonFinite, when: nonFinite("loss")}
- {name: spike, when: 'spike("loss", 60)', onUnknown: "False"}
- {name: slow, when: 'progress.sinceStep > duration("17s")', actions: [{type: Notify}, {type: Checkpoint, after: 4s}]}
- {name: long, when: 'progress.percent > 50.0 && job.runningFor > duration("15m")', actions: [{type: Notify}]}
"""


def recorded(seed: int) -> list[Row]:
    """A loss that falls, goes flat, and jumps; some values are not finite, and some steps take long."""
    chance = random.Random(seed)
    rows, seconds = [], 0.0
    for step in range(1, 301):
        seconds += 25.0 if step % 50 == 0 else chance.choice([3.0, 3.5, 4.0, 4.5])
        level = max(10 - step / 10, 3.0) + (8.0 if 230 < step < 260 + seed else 0.0)
        value = math.nan if step in (120, 280 + seed) else level + chance.gauss(0, 0.02)
        finite = math.isfinite(value)
        rows.append(Row(step, {"loss": value} if finite else {}, {} if finite else {"loss": "NaN"}, seconds, 400))
    return rows


def by_the_judge(rows: list[Row], compiled: CompiledPolicy) -> list[tuple[str, str, int]]:
    """What a judge that is asked each second and at each row says: rule, what, and step."""
    run, memory = RunState(facts(gpus=8)), RunMemory()
    said: list[tuple[str, str, int]] = []

    def look(seconds: float) -> None:
        for decision in judge([compiled], run, memory, T0 + timedelta(seconds=seconds)).decisions:
            if decision.action is not None and decision.action_state is not ActionState.CANCELLED:
                said.append((decision.rule, decision.action.type.value, run.step() or 0))
            elif decision.action is None and decision.verdict is Verdict.FIRING:
                said.append((decision.rule, "Firing", run.step() or 0))

    second = 0
    for seq, row in enumerate(rows):
        assert row.seconds is not None
        while seq and second < row.seconds:
            look(second)
            second += 1
        second = math.ceil(row.seconds)
        report = Report("r", seq, 0.0, "p", "train", row.step, total=row.total, metrics=dict(row.metrics),
                        nonfinite=dict(row.nonfinite))  # fmt: skip
        run.observe(report, T0 + timedelta(seconds=row.seconds))
        look(row.seconds)
    return said


@pytest.mark.parametrize("seed", range(4))
def test_a_replay_decides_as_the_judge(seed: int) -> None:
    compiled, rows = policy(RULES), recorded(seed)
    expected = by_the_judge(rows, compiled)

    found = replay("r", rows, [compiled], replace(SETTING, fineness=math.inf))

    fired = [(rule, step) for rule, what, step in expected if what == "Firing"]
    acted = [(rule, what, step) for rule, what, step in expected if what in ("Suspend", "Stop", "Checkpoint")]
    assert len({rule for rule, _ in fired}) == 6  # every rule has its case
    assert found.outcomes[0].fires == len(fired)
    took = [(each.rule, each.action.value, each.step) for each in found.firings if each.action and each.action.rank > 0]
    assert [each[:2] for each in took] == [each[:2] for each in acted]
    steps = zip((step for *_, step in took), (step for *_, step in acted), strict=True)
    assert all(abs(mine - theirs) <= 1 for mine, theirs in steps)  # a wait ends between two whole seconds
    shown = {(each.rule, each.step + late) for each in found.firings for late in (0, 1)}
    assert shown >= set(fired)
