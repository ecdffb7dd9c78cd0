"""Ladders, walked through time: what is decided, requested and told, and when."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.policies.judging import PROOF, Walk, moment, policy, told
from tests.policies.runs import facts

from trainwarden.policies.decision import ActionState, ActionType, Mode, Verdict
from trainwarden.policies.facts import JobPhase
from trainwarden.policies.judge import Judgement, withdraw
from trainwarden.policies.memory import RunMemory, forget

HIGH = "when: metrics.loss > 2.0"
LADDER = f"""
{HIGH}
actions:
- {{type: Notify, channels: [ops]}}
- {{type: Checkpoint, after: 1m}}
- {{type: Suspend, after: 3m}}
"""
AT_ONCE = f"""
{HIGH}
actions:
- {{type: Notify, channels: [ops]}}
- {{type: Suspend}}
"""


def step(walk: Walk, kind: ActionType, name: str = "guard") -> str:
    """Id of a step of the rule `bad`."""
    (found,) = (s for s in walk.memory.policies[f"uid-{name}"].rules["bad"].steps if s.type is kind)
    return found.id


def requested(judgement: Judgement) -> list[str]:
    return [request.action.type.value for request in judgement.requests]


def test_a_rule_decides_when_its_verdict_changes_and_not_otherwise() -> None:
    walk = Walk([policy(f"{HIGH}\nfor: 10s\nkeepFiringFor: 0s")])

    given = [told(walk.report(loss, at)) for at, loss in enumerate([1, 1, 3, 3, 1, 3] + [3] * 11 + [1])]

    assert given == [[], [], ["Pending"], [], ["Inactive"], ["Pending"], *[[]] * 9, ["Firing"], [], ["Resolved"]]


def test_a_signal_that_flaps_is_one_incident_and_is_told_twice() -> None:
    walk = Walk([policy(f"{HIGH}\nfor: 10s\nactions: [{{type: Notify}}]")])

    for at in range(120):
        walk.report(3 if at < 11 or (at % 7 and at < 90) else 1, at)

    assert [(n.decision.verdict, n.incident) for j in walk.all for n in j.notices] == [
        (Verdict.FIRING, walk.all[10].notices[0].incident),
        (Verdict.RESOLVED, walk.all[10].notices[0].incident),
    ]


def test_nothing_that_ends_the_training_begins_while_a_rule_is_only_kept_firing() -> None:
    walk = Walk([policy(f"{HIGH}\nkeepFiringFor: 1m\nactions: [{{type: Suspend, after: 10s}}]")])

    asked = [requested(walk.report(loss, at)) for at, loss in enumerate([3] * 5 + [1] * 15 + [3])]

    assert asked == [*[[]] * 20, ["Suspend"]]
    assert all(judged.wake_at and judged.wake_at >= moment(at + 1) for at, judged in enumerate(walk.all[10:20], 10))


def test_a_decision_says_what_it_was_made_from() -> None:
    walk = Walk([policy(f"{HIGH} && progress.percent < 95.0")])

    decision = walk.report(3.5, 1, step=7).decisions[0]

    assert decision.reason == "ConditionHeld"
    assert decision.message == "metrics.loss is 3.5, progress.percent is 0.7"
    assert decision.evidence.values == {"metrics.loss": 3.5, "progress.percent": 0.7}
    assert decision.evidence.step == 7
    assert decision.evidence.known_since == moment(1)


def test_a_decision_says_the_rules_own_sentence() -> None:
    walk = Walk([policy(f"{HIGH}\nmessage: '\"too high in \" + job.name'")])

    assert walk.report(3, 1).decisions[0].message == "too high in llama"


def test_a_sentence_without_a_value_is_replaced_by_the_values() -> None:
    walk = Walk([policy(f"{HIGH}\nmessage: '\"it costs \" + string(job.cost)'")])

    assert walk.report(3, 1).decisions[0].message == "metrics.loss is 3"


def test_a_decision_lists_only_the_windows_that_its_own_rule_looked_at() -> None:
    rules = """
    - {name: other, when: 'mean("loss", 5) > 0.0'}
    - {name: bad, when: 'mean("eval", 5) > 0.0'}
    """
    walk = Walk([policy(rules)])
    for at in range(1, 20):
        walk.training.report(at, {"loss": 1.0 + at / 100, "eval": 2.0 + at / 100})
    decisions = walk.look(200).decisions

    assert [[w.metric for w in d.evidence.windows] for d in decisions] == [["loss"], ["eval"]]


def test_a_ladder_is_climbed_step_by_step() -> None:
    walk = Walk([policy(LADDER)])

    assert told(walk.report(3, 0)) == ["Firing", "Notify Requested Due"]
    assert told(walk.report(3, 59)) == []
    assert requested(walk.report(3, 60)) == ["Checkpoint"]
    walk.result(step(walk, ActionType.CHECKPOINT), ActionState.DONE, 70, proof=PROOF)
    assert told(walk.report(3, 179)) == []
    assert requested(walk.report(3, 180)) == ["Suspend"]
    assert told(walk.report(3, 181)) == []


def test_a_ladder_stops_when_its_rule_resolves() -> None:
    walk = Walk([policy(LADDER)])
    walk.report(3, 0)
    walk.report(3, 60)
    walk.result(step(walk, ActionType.CHECKPOINT), ActionState.IN_PROGRESS, 61)

    resolved = walk.report(1, 100)

    assert told(resolved) == ["Resolved", "Suspend Cancelled Resolved"]
    assert [notice.decision.verdict for notice in resolved.notices] == [Verdict.RESOLVED]
    assert told(walk.report(1, 1000)) == []


def test_a_message_waits_for_what_is_done_with_it_and_there_is_only_one() -> None:
    walk = Walk([policy(AT_ONCE)])
    first = walk.report(3, 0)
    assert told(first) == ["Firing", "Suspend Requested Due", "Notify Waiting OtherAction"]
    assert first.notices == []
    assert walk.result(step(walk, ActionType.SUSPEND), ActionState.IN_PROGRESS, 1).notices == []

    (notice,) = walk.result(step(walk, ActionType.SUSPEND), ActionState.DONE, 30, proof=PROOF).notices

    assert [(o.action, o.state) for o in notice.outcomes] == [("Suspend", "Done")]
    assert (notice.checkpoint, notice.resume_command, notice.channels) == (PROOF, "resume it", ("ops",))
    assert [n for at in (31, 60, 900) for n in walk.look(at).notices] == []


def test_a_message_does_not_wait_for_ever() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(3, 0)
    assert walk.look(600 + 89).notices == []

    assert [[o.state for o in n.outcomes] for n in walk.look(600 + 90).notices] == [["Requested"]]
    later = walk.result(step(walk, ActionType.SUSPEND), ActionState.DONE, 800, proof=PROOF)
    assert [[o.state for o in n.outcomes] for n in later.notices] == [["Done"]]


def test_an_announced_action_is_told_of_again_when_it_has_ended() -> None:
    walk = Walk([policy(LADDER)])
    announced = walk.report(3, 0).notices[0]
    assert [(o.action, o.state, o.at) for o in announced.outcomes] == [
        ("Checkpoint", "Planned", moment(60)),
        ("Suspend", "Planned", moment(180)),
    ]
    walk.report(3, 60)
    assert walk.result(step(walk, ActionType.CHECKPOINT), ActionState.DONE, 61, proof=PROOF).notices == []
    walk.report(3, 180)

    (notice,) = walk.result(step(walk, ActionType.SUSPEND), ActionState.DONE, 200, proof=PROOF).notices

    assert (notice.incident, notice.channels) == (announced.incident, ("ops",))
    assert notice.id != announced.id


@pytest.mark.parametrize("state", [ActionState.FAILED, ActionState.REFUSED])
def test_people_are_told_of_what_did_not_work_even_without_a_notify(state: ActionState) -> None:
    walk = Walk([policy(f"{HIGH}\nactions: [{{type: Suspend}}]")])
    walk.report(3, 0)

    (notice,) = walk.result(step(walk, ActionType.SUSPEND), state, 5).notices

    assert (notice.channels, notice.decision.action_state) == ((), state)


def test_a_result_that_comes_twice_changes_nothing() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(3, 0)
    suspend = step(walk, ActionType.SUSPEND)
    walk.result(suspend, ActionState.DONE, 1, proof=PROOF)

    for state in ActionState:
        assert told(walk.result(suspend, state, 2)) == []
    assert told(walk.result("never heard of", ActionState.DONE, 2)) == []


def test_audit_says_once_what_would_have_been_done() -> None:
    walk = Walk([policy(AT_ONCE, mode="Audit")])

    first = walk.report(3, 0)

    assert told(first) == ["Firing", "Suspend WouldAct Audit", "Notify Requested Due"]
    assert (first.requests, [[o.state for o in n.outcomes] for n in first.notices]) == ([], [["WouldAct"]])
    assert told(walk.report(3, 500)) == []


def test_a_policy_that_is_enforced_while_it_fires_does_what_it_only_spoke_of() -> None:
    walk = Walk([policy(AT_ONCE, mode="Audit")])
    walk.report(3, 0)
    audit = step(walk, ActionType.SUSPEND)

    walk.policies = [policy(AT_ONCE, generation=2)]

    assert [r.action.id for r in walk.report(3, 10).requests] == [audit]


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize(
    ("done", "protections", "state"),
    [
        (969, {}, None),
        (970, {}, "AlmostFinished"),
        (970, {"abovePercent": 100}, None),
        (1000, {"abovePercent": 100}, None),
        (500, {"abovePercent": 50}, "AlmostFinished"),
    ],
    ids=["just below", "exactly", "off", "off at the end", "its own"],
)
def test_almost_finished_runs_are_left_alone(
    mode: Mode, done: int, protections: dict[str, int], state: str | None
) -> None:
    walk = Walk([policy(f"{HIGH}\nactions: [{{type: Suspend}}]", mode=mode.value, protections=protections)])

    judged = walk.report(3, 1, step=done)

    usual = "Suspend WouldAct Audit" if mode is Mode.AUDIT else "Suspend Requested Due"
    assert told(judged)[1:] == [f"Suspend Refused {state}" if state else usual]
    assert len(judged.notices) == (state is not None and mode is Mode.ENFORCE)


def test_young_runs_are_left_alone_until_they_are_old_enough() -> None:
    rule = f"{HIGH}\nactions: [{{type: Suspend}}]"
    walk = Walk([policy(rule, protections={"minRunningFor": "10m"})])

    assert told(walk.report(3, 1))[1:] == ["Suspend Waiting YoungRun"]
    assert told(walk.report(3, 599)) == []
    assert told(walk.report(3, 600)) == ["Suspend Requested Due"]


def test_of_two_suspends_one_is_done_and_the_other_recorded_as_covered() -> None:
    rule = f"{HIGH}\nactions: [{{type: Suspend}}]"
    walk = Walk([policy(rule, name="one"), policy(rule, name="two")])

    judged = walk.report(3, 0)

    assert requested(judged) == ["Suspend"]
    assert sorted(told(judged)) == ["Firing", "Firing", "Suspend Refused Covered", "Suspend Requested Due"]
    assert judged.notices == []


def test_the_least_destructive_action_wins_and_is_enough() -> None:
    delete, suspend = (f"{HIGH}\nactions: [{{type: {kind}}}]" for kind in ("Delete", "Suspend"))
    walk = Walk([policy(delete, name="one"), policy(suspend, name="two")])
    judged = walk.report(3, 0)
    assert requested(judged) == ["Suspend"]
    assert "Delete Waiting OtherAction" in told(judged)

    walk.result(step(walk, ActionType.SUSPEND, "two"), ActionState.DONE, 10, proof=PROOF)

    assert told(walk.look(11)) == ["Delete Refused Covered"]


def test_the_more_destructive_action_is_done_when_the_other_did_not_work() -> None:
    delete, suspend = (f"{HIGH}\nactions: [{{type: {kind}}}]" for kind in ("Delete", "Suspend"))
    walk = Walk([policy(delete, name="one"), policy(suspend, name="two")])
    walk.report(3, 0)

    walk.result(step(walk, ActionType.SUSPEND, "two"), ActionState.FAILED, 10)

    assert requested(walk.look(11)) == ["Delete"]


def test_a_suspended_job_is_not_suspended_again_and_nobody_is_told() -> None:
    walk = Walk([policy(LADDER)])
    walk.report(3, 0)
    walk.training.state.learn(facts(phase=JobPhase.SUSPENDED, ready=False, time=moment(30)))

    assert told(walk.look(60)) == ["Checkpoint Refused AlreadySuspended"]
    later = walk.look(180)
    assert told(later) == ["Suspend Refused AlreadySuspended"]
    assert later.notices == []


def test_a_job_that_has_ended_is_not_judged_any_more() -> None:
    walk = Walk([policy(LADDER)])
    walk.report(3, 0)
    walk.training.state.learn(facts(phase=JobPhase.COMPLETE, ready=False, time=moment(30)))

    judged = walk.look(31)

    assert told(judged) == ["Resolved", "Checkpoint Cancelled JobEnded", "Suspend Cancelled JobEnded"]
    assert judged.decisions[0].message == "the job is Complete"
    assert judged.notices == []
    assert told(walk.look(500)) == []


def test_an_action_that_ends_the_job_is_told_of_whichever_is_heard_first() -> None:
    walk = Walk([policy(AT_ONCE.replace("Suspend", "Stop"))])
    walk.report(3, 0)
    walk.training.state.learn(facts(phase=JobPhase.FAILED, ready=False, time=moment(5)))
    assert told(walk.look(6)) == []

    judged = walk.result(step(walk, ActionType.STOP), ActionState.DONE, 7, proof=PROOF)

    assert told(judged) == ["Stop Done Tried", "Notify Requested Due", "Resolved"]
    assert [[o.state for o in n.outcomes] for n in judged.notices] == [["Done"]]


def test_a_delete_waits_for_an_approval_and_is_not_done_without() -> None:
    approval = "approval: {expiresAfter: 4h}"
    walk = Walk([policy(f"{HIGH}\nactions: [{{type: Notify}}, {{type: Delete, {approval}}}]")])

    first = walk.report(3, 0)

    assert told(first)[1:] == ["Delete Waiting Approval", "Notify Requested Due"]
    for at in range(60, 4 * 3600, 600):
        walk.report(3, at)
    assert told(walk.report(3, 4 * 3600)) == ["Delete Refused ApprovalExpired"]


def test_unknown_data_neither_ends_an_incident_nor_begins_one() -> None:
    walk = Walk([policy(f"{HIGH}\nfor: 10s")])
    walk.report(3, 0)
    walk.training.report(2, {}, nonfinite={"loss": "NaN"}, wait=5 * (moment(1) - moment(0)))

    judged = walk.look(5)

    assert told(judged) == ["Unknown"]
    assert judged.decisions[0].evidence.unknown == "loss is NaN at step 2"
    assert told(walk.report(3, 21)) == ["Pending"]


def test_a_policy_that_is_not_for_the_run_says_nothing() -> None:
    for spec in ({"selector": {"matchLabels": {"tier": "dev"}}}, {"match": "job.gpus > 8"}):
        assert told(Walk([policy(HIGH, **spec)]).report(3, 0)) == []


def test_a_run_that_its_policy_is_no_longer_for_is_let_go() -> None:
    walk = Walk([policy(LADDER, selector={"matchLabels": {"tier": "dev"}})])
    walk.training.state.learn(facts(labels={"tier": "dev"}))
    walk.report(3, 0)
    walk.training.state.learn(facts(labels={}, time=moment(10)))

    assert told(walk.look(11)) == ["Resolved", "Checkpoint Cancelled NotSelected", "Suspend Cancelled NotSelected"]


def test_an_edited_condition_is_judged_anew() -> None:
    walk = Walk([policy(LADDER)])
    first = walk.report(3, 0).decisions[1].action
    walk.policies = [policy(LADDER.replace("2.0", "2.5"), generation=2)]

    judged = walk.report(3, 10)

    assert told(judged)[0] == "Resolved"
    assert judged.decisions[0].reason == "PolicyChanged"
    assert told(judged)[-2:] == ["Firing", "Notify Requested Due"]
    again = judged.decisions[-1].action
    assert first is not None
    assert again is not None
    assert first.id != again.id


def test_an_edited_ladder_does_not_repeat_what_was_done() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(3, 0)
    walk.result(step(walk, ActionType.SUSPEND), ActionState.DONE, 1, proof=PROOF)

    for shorter in (AT_ONCE + "- {type: Delete, after: 1h}\n", HIGH, AT_ONCE):
        walk.policies = [policy(shorter, generation=2)]
        assert told(walk.report(3, 20)) == []


def test_a_new_episode_does_not_repeat_an_action_that_is_still_being_done() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(3, 0)
    walk.result(step(walk, ActionType.SUSPEND), ActionState.IN_PROGRESS, 1)
    walk.report(1, 5)

    judged = walk.report(3, 10)

    assert "Suspend Refused Covered" in told(judged)
    assert judged.requests == []


@pytest.mark.parametrize("action", ["Checkpoint", "Suspend", "Stop", "Delete"])
def test_an_action_that_no_executor_has_begun_is_taken_back_when_its_rule_resolves(action: str) -> None:
    walk = Walk([policy(f"{HIGH}\nactions: [{{type: {action}}}]")])
    assert requested(walk.report(3, 0)) == [action]
    recalled = step(walk, ActionType(action))

    assert f"{action} Cancelled Resolved" in told(walk.report(1, 5))
    assert walk.result(recalled, ActionState.REFUSED, 6).decisions == []
    assert requested(walk.report(3, 10)) == [action]
    assert step(walk, ActionType(action)) != recalled


def test_an_action_that_had_begun_before_its_recall_was_heard_of_is_told_as_it_went() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(3, 0)
    walk.report(1, 5)
    suspend = step(walk, ActionType.SUSPEND)

    assert told(walk.result(suspend, ActionState.IN_PROGRESS, 6)) == ["Suspend InProgress Tried"]
    assert told(walk.result(suspend, ActionState.DONE, 7, proof=PROOF)) == ["Suspend Done Tried"]
    assert walk.result(suspend, ActionState.DONE, 8, proof=PROOF).decisions == []


def test_what_an_executor_has_not_begun_is_taken_back_with_its_policy() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(3, 0)
    gone = withdraw(walk.policies[0], walk.training.state, walk.memory, moment(1))
    assert "Suspend Cancelled PolicyDeleted" in told(gone)


def test_a_restart_changes_nothing() -> None:
    plain, restarted = Walk([policy(LADDER)]), Walk([policy(LADDER)])
    for at in range(0, 400, 10):
        loss = 1 if at == 200 else 3
        plain.report(loss, at)
        restarted.report(loss, at)
        restarted.restart()

    assert plain.decisions == restarted.decisions
    assert plain.memory == restarted.memory


def test_what_follows_from_an_older_memory_has_the_same_ids() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.report(1, 0)
    before = msgspec.json.encode(walk.memory)
    first = walk.report(3, 1)
    walk.memory = msgspec.json.decode(before, type=RunMemory)

    assert walk.look(1) == first


def test_a_policy_that_is_gone_is_forgotten() -> None:
    walk = Walk([policy(LADDER)])
    walk.report(3, 0)

    forget("uid-guard", walk.memory)

    assert walk.memory == RunMemory()


def test_memory_is_bounded_however_many_policies_come_and_go() -> None:
    walk = Walk([])
    for number in range(100):
        walk.policies = [policy(LADDER, name=f"p{number}")]
        walk.report(3, number)

    assert len(walk.memory.policies) <= 34


@pytest.mark.parametrize(
    ("rule", "seconds"),
    [
        (HIGH, 30),
        ("when: progress.sinceStep > duration('10m')", 1),
        (f"{HIGH}\nfor: 7s", 7),
        (f"{HIGH}\nactions: [{{type: Checkpoint, after: 9s}}]", 9),
    ],
    ids=["data goes stale", "by time", "for", "after"],
)
def test_a_run_is_looked_at_again_when_something_may_be_due(rule: str, seconds: float) -> None:
    assert Walk([policy(rule)]).report(3, 0).wake_at == moment(seconds)


def test_variables_that_change_by_time_make_their_rules_be_looked_at_in_time() -> None:
    variables = [{"name": "quiet", "expression": "progress.sinceStep"}]
    guarded = policy("when: variables.quiet > duration('10m')", variables=variables)

    assert Walk([guarded]).report(3, 0).wake_at == moment(1)


def test_a_condition_on_a_variable_shows_what_the_variable_saw() -> None:
    guarded = policy("when: variables.high", variables=[{"name": "high", "expression": "metrics.loss > 2.0"}])

    assert Walk([guarded]).report(3, 0).decisions[0].evidence.values["metrics.loss"] == 3


def test_what_a_suspend_saved_is_told() -> None:
    walk = Walk([policy(AT_ONCE)])
    walk.training.state.learn(facts(price_per_hour=36.0))
    for at in range(0, 1000, 10):
        walk.report(1, at)
    walk.report(3, 1000)

    (notice,) = walk.result(step(walk, ActionType.SUSPEND), ActionState.DONE, 1001, proof=PROOF).notices

    assert notice.saved_seconds == pytest.approx(8990, rel=0.05)
    assert notice.saved_cost == pytest.approx(89.9, rel=0.05)
    assert notice.curve is not None
    assert notice.curve.metric == "loss"


walks = st.lists(
    st.tuples(st.integers(1, 200), st.sampled_from([1.0, 3.0, None]), st.sampled_from([*ActionState, None])),
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(walks=walks, audit=st.booleans())
def test_no_walk_derives_an_id_twice_or_requests_an_action_twice(
    walks: list[tuple[int, float | None, ActionState | None]], audit: bool
) -> None:
    guarded = policy(LADDER + "- {type: Delete, after: 5m}\n")
    audited = replace(guarded, ref=msgspec.structs.replace(guarded.ref, mode=Mode.AUDIT))
    walk, at = Walk([audited if audit else guarded, policy(AT_ONCE, name="other")]), 0
    for passed, loss, state in walks:
        at += passed
        if loss is None:
            walk.look(at)
        else:
            walk.report(loss, at)
        for request in [r for judgement in walk.all for r in judgement.requests]:
            if state is not None:
                walk.result(request.action.id, state, at)
        walk.restart()

    assert len({d.id for d in walk.decisions}) == len(walk.decisions)
    actions = [r.action.id for j in walk.all for r in j.requests]
    assert len(set(actions)) == len(actions)
    notices = [n.id for j in walk.all for n in j.notices]
    assert len(set(notices)) == len(notices)
