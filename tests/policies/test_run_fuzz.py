"""Whatever a training sends, the state of its run stands."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.runs import T0, facts

from trainwarden.policies.expressions.protocol import UnknownValueError
from trainwarden.policies.facts import JobPhase, RunFacts
from trainwarden.policies.run import RunState
from trainwarden.policies.variables import VARIABLES_BY_NAME
from trainwarden.reporters.wire import Checkpoint, Report

PHASES = st.sampled_from(["init", "train", "eval", "checkpoint", "done", "failed"])
NAMES = st.sampled_from(["loss", "eval/loss", "lr", "grad_norm", "accuracy", ""])
REPORTS = st.builds(
    Report,
    run=st.sampled_from(["r-1", "r-2", "r-3"]),
    seq=st.integers(-1, 400),
    ts=st.floats(),
    pod=st.sampled_from(["a", "b"]),
    phase=PHASES,
    step=st.one_of(st.integers(-2, 300), st.integers()),
    rank=st.sampled_from([0, 0, 0, 1]),
    total=st.one_of(st.none(), st.integers(-5, 300), st.integers()),
    epoch=st.one_of(st.none(), st.floats()),
    metrics=st.dictionaries(NAMES, st.one_of(st.floats(), st.sampled_from([0.0, 1.0, 2.0])), max_size=4),
    nonfinite=st.dictionaries(NAMES, st.sampled_from(["NaN", "Infinity", "-Infinity", "odd"]), max_size=2),
    checkpoint=st.one_of(st.none(), st.builds(Checkpoint, step=st.integers(0, 300), path=st.just("/c"))),
)
FACTS = st.builds(
    lambda phase, ready, attempt, minutes, pods: facts(
        phase=phase,
        ready=ready,
        attempt=attempt,
        time=T0 + timedelta(minutes=minutes),
        pods=pods,
        attempt_started_at=T0 + timedelta(minutes=minutes) if ready else None,
    ),
    st.sampled_from(list(JobPhase)),
    st.booleans(),
    st.sampled_from(["a-1", "a-2"]),
    st.integers(0, 600),
    st.sampled_from([(), ("a",), ("a", "b")]),
)
CALLS = (
    ("plateau", ("loss", 20)),
    ("divergence", ("loss", timedelta(minutes=5))),
    ("spike", ("loss", 50)),
    ("overfitting", ("eval/loss", "loss", 50)),
    ("throughputDrop", (timedelta(minutes=5), 0.5)),
    ("change", ("loss", 10)),
    ("slope", ("loss", timedelta(hours=1))),
    ("quantile", ("loss", 30, 0.9)),
    ("sinceBest", ("accuracy",)),
    ("age", ("loss",)),
    ("nonFinite", ("loss",)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(REPORTS, REPORTS, REPORTS, FACTS), max_size=80), st.data())
def test_nothing_that_is_sent_breaks_it(messages: list[Report | RunFacts], data: st.DataObject) -> None:
    state, at = RunState(facts()), T0
    for message in messages:
        at += timedelta(seconds=data.draw(st.integers(-30, 900)))
        if isinstance(message, RunFacts):
            state.learn(message)
        else:
            state.observe(message, at)
        scope = state.scope(at)
        for name in VARIABLES_BY_NAME:
            try:
                scope.variable(name)
            except UnknownValueError as unknown:
                assert unknown.reason  # noqa: PT017
        for function, arguments in CALLS:
            try:
                scope.call(function, arguments)
            except UnknownValueError as unknown:
                assert unknown.reason  # noqa: PT017
    for name in state.metrics:
        state.curve(name, window=None, fired_at=None)
    assert state.metric_values().keys() == state.metrics.names()
