"""The engine over real NATS: what it decides, tells and takes amiss."""

from __future__ import annotations

import asyncio
import logging
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.controller.engines import HIGH, Trainer, begin, facts, hearing, policy, running
from tests.reporters.nats_server import NatsServer, eventually

from trainwarden.controller.bus import Bus, Entry, Reading
from trainwarden.controller.publishing import delete_policy, publish_facts, publish_policy, publish_result
from trainwarden.policies.decision import ActionResult, ActionState
from trainwarden.policies.facts import JobPhase
from trainwarden.reporters import Reporter

MESSAGES = Path(__file__).parents[1] / "reporters" / "messages"


async def test_a_policy_fires_on_what_a_reporter_says_and_all_is_told_once(server: NatsServer, bus: Bus) -> None:
    await publish_policy(bus, policy("{name: high, when: metrics.loss > 5.0, for: 1s, actions: [{type: Notify}]}"))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        with Reporter(namespace="team-a", job="bert", url=server.url, token=server.token, heartbeat_seconds=0.2) as one:
            for step in range(1, 200):
                one.report(step, {"loss": 9.5}, total=1000)
                await asyncio.sleep(0.02)
                if heard.notices:
                    break
            await eventually(lambda: heard.states and heard.states[-1].rules and heard.states[-1].rules[0].steps)
    assert heard.told == ["high Pending", "high Firing", "high Notify Requested"]
    heard.once()
    assert heard.decisions[1].evidence.values["metrics.loss"] == 9.5
    assert heard.decisions[1].time - heard.decisions[0].time >= timedelta(seconds=1)
    assert {decision.engine for decision in heard.decisions} == {"test"}
    assert heard.notices[0].decision.id == heard.decisions[2].id
    assert heard.states[-1].rules[0].verdict.value == "Firing"


async def test_a_loss_that_is_not_a_number_fires_and_is_no_number_for_others(bus: Bus) -> None:
    await publish_policy(bus, policy(f"[{HIGH}, {{name: nan, when: nonFinite('loss'), actions: [{{type: Notify}}]}}]"))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await Trainer(bus).report(nonfinite={"loss": "NaN"})
        await eventually(lambda: heard.states and heard.notices)
        await eventually(lambda: heard.states[-1].rules)
    rules = {rule.rule: rule for rule in heard.states[-1].rules}
    assert (rules["high"].verdict.value, rules["nan"].verdict.value) == ("Unknown", "Firing")
    assert "NaN" in rules["high"].unknown
    assert heard.states[-1].nonfinite == {"loss": "NaN"}


async def test_a_policy_edited_while_it_fires_is_judged_anew(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        trainer = Trainer(bus)
        await trainer.report(9.0)
        await eventually(lambda: heard.notices)
        await publish_policy(bus, policy(HIGH.replace("5.0", "50.0"), generation=2))
        await trainer.until(lambda: "high Resolved" in heard.told, 9.0)
    assert next(d for d in heard.decisions if d.verdict.value == "Resolved").reason == "PolicyChanged"


async def test_a_policy_deleted_while_it_fires_ends_what_goes_on(bus: Bus) -> None:
    one = policy(HIGH)
    await publish_policy(bus, one)
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.notices)
        await delete_policy(bus, one)
        await eventually(lambda: heard.decisions[-1].reason == "PolicyDeleted")
        await eventually(lambda: not heard.states[-1].rules)
        await publish_policy(bus, one)  # the very same, put back at once
        await eventually(lambda: heard.states[-1].rules)
    assert "high Resolved" in heard.told


async def test_a_broken_policy_is_not_acted_on_and_the_others_are(bus: Bus) -> None:
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await bus.store("tw.policy.team-a.broken", b'{"kind": "TrainingPolicy", "spec": 7}', message_id="a")
        await bus.store("tw.policy.team-a.noise", b"\xff[[[", message_id="b")
        await bus.store("tw.policy.team-a.deep", b"[" * 100_000, message_id="c")
        await publish_policy(bus, policy(HIGH))
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.notices and len(heard.states[-1].problems) == 3)
    assert any(problem.startswith("team-a.broken: ") for problem in heard.states[-1].problems)


async def test_facts_after_reports_are_in_time(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        await Trainer(bus).report(9.0)
        await asyncio.sleep(0.2)
        await begin(bus)
        await eventually(lambda: heard.notices)
    heard.once()


async def test_facts_that_are_noise_or_of_another_subject_are_passed_over(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        await bus.store("tw.facts.team-a.bert", b"{}", message_id="a")
        await bus.store("tw.result.team-a.bert", b"7", message_id="b")
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.notices)


async def test_an_older_attempt_is_fenced_off(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        await begin(bus, pods=("bert-0",))
        old = Trainer(bus)
        await old.report(1.0)
        await eventually(lambda: heard.states and heard.states[-1].step == 1)
        await begin(bus, attempt="a-2", pods=("bert-1",))
        new = Trainer(bus, run="r-2", pod="bert-1")
        await new.until(lambda: heard.states[-1].run.run == "r-2", 2.0)
        for _ in range(5):
            await old.report(9.0)
        await new.until(lambda: (heard.states[-1].step or 0) >= 5, 2.0)
    assert heard.told == []


async def test_duplicates_and_reordered_reports_change_nothing(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        trainer = Trainer(bus)
        for seq in (0, 1, 2, 2, 1, 4, 3, 4, 0):
            await trainer.report(9.0 if seq == 3 else 1.0, seq=seq, step=seq + 1)
        await trainer.report(1.0, seq=5, step=6)
        await eventually(lambda: heard.states and heard.states[-1].step == 6)
    assert heard.told == []
    assert heard.states[-1].metrics == {"loss": 1.0}


async def test_rejected_reports_are_counted_and_kept(bus: Bus) -> None:
    async with running(bus) as engine:
        kept: list[Entry] = []
        reading = asyncio.create_task(Reading(bus, "TW_REJECTED", take=kept.append).run())
        bad = sorted(MESSAGES.glob("report-bad-*.json"))
        for path in bad:
            await Trainer(bus).send(path.read_bytes())
        await eventually(lambda: len(kept) == len(bad))
        reading.cancel()
        assert engine.rejected == len(bad)
    assert {entry.subject for entry in kept} == {"tw.rejected.team-a.bert"}
    assert all(entry.headers and entry.headers["Trainwarden-Reason"] for entry in kept)


async def test_jobs_of_other_partitions_are_left_to_others(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    jobs = [f"job-{number}" for number in range(8)]
    async with hearing(bus) as heard, running(bus, partitions=range(8)), running(bus, partitions=range(8, 16)):
        for job in jobs:
            await begin(bus, job=job, uid=job)
            await Trainer(bus, job=job, run=job).report(9.0)
        await eventually(lambda: len(heard.notices) == len(jobs))
    assert {notice.decision.run.job for notice in heard.notices} == set(jobs)


async def test_a_rule_fires_by_time_alone(bus: Bus) -> None:
    await publish_policy(bus, policy("{name: stalled, when: progress.sinceReport > duration('1s')}"))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await Trainer(bus).report(1.0)
        await eventually(lambda: "stalled Firing" in heard.told)


async def test_the_last_state_of_a_job_that_ended_is_told(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        told = await begin(bus)
        trainer = Trainer(bus)
        await trainer.report(1.0)
        await eventually(lambda: heard.states)
        await trainer.report(2.0)
        await trainer.report(phase="done", step=2)
        await publish_facts(bus, facts(phase=JobPhase.COMPLETE, created_at=told.created_at))
        await eventually(lambda: heard.states[-1].job_phase == "Complete" and heard.states[-1].phase == "done")
    assert heard.told == []


async def test_reports_from_before_a_job_of_the_same_name_are_not_its(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.controller.jobs._HEAD_START", 0.0)
    await publish_policy(bus, policy(HIGH))
    await Trainer(bus, run="old").report(9.0)
    await asyncio.sleep(0.1)
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await eventually(lambda: heard.states)
    assert heard.states[-1].step is None
    assert heard.told == []


async def test_what_came_of_a_deletion_is_told_though_another_job_has_the_name_by_then(bus: Bus) -> None:
    await publish_policy(
        bus, policy("{name: high, when: metrics.loss > 5.0, actions: [{type: Delete, checkpoint: Skip}]}")
    )
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.requests)
        await publish_facts(bus, facts(uid="u-2", attempt="a-2"))
        await eventually(lambda: heard.states and heard.states[-1].run.uid == "u-2")
        action = heard.requests[0].action.id
        await publish_result(
            bus, ActionResult(action, "team-a", "bert", ActionState.DONE, "Deleted", "deleted", facts().time)
        )
        await eventually(lambda: "high Delete Done" in heard.told)

    assert {decision.run.uid for decision in heard.decisions} == {"u-1"}
    assert heard.states[-1].run.uid == "u-2"
    assert [notice.decision.message for notice in heard.notices] == ["deleted"]
    assert len(heard.requests) == 1


async def test_a_job_that_is_replaced_ends_what_goes_on_and_the_new_one_begins_anew(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: "high Firing" in heard.told)
        await publish_facts(bus, facts(uid="u-2", attempt="a-2"))
        await eventually(lambda: "high Resolved" in heard.told)
        await eventually(lambda: heard.states[-1].run.uid == "u-2")

    assert heard.decisions[-1].reason == "JobEnded"
    assert all(rule.verdict != "Firing" for rule in heard.states[-1].rules)


async def test_a_result_that_comes_before_its_action_is_known_is_kept(bus: Bus) -> None:
    """Two engines: the slower one hears of the result first."""
    rule = "{name: high, when: metrics.loss > 5.0, actions: [{type: Checkpoint}]}"
    await publish_policy(bus, policy(rule))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.requests)
    action = heard.requests[0].action.id
    for stream in ("TW_STATE", "TW_DECISIONS", "TW_ACTIONS", "TW_NOTICES", "TW_REPORTS"):
        await bus.request(f"$JS.API.STREAM.PURGE.{stream}", None)
    async with hearing(bus) as heard, running(bus):
        when = facts().time
        result = ActionResult(action, "team-a", "bert", ActionState.DONE, "Saved", "saved", when)
        await publish_result(bus, result)
        await asyncio.sleep(0.3)
        await Trainer(bus, run="r-2").report(9.0)
        await eventually(lambda: "high Checkpoint Done" in heard.told)


async def test_an_engine_that_is_stopped_has_told_all(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    from trainwarden.controller.engine import Engine

    caplog.set_level(logging.ERROR)
    await publish_policy(bus, policy(HIGH))
    stop, engine = asyncio.Event(), Engine(bus)
    task = asyncio.create_task(engine.run(stop))
    await asyncio.wait_for(engine.ready.wait(), 20)
    async with hearing(bus) as heard:
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.decisions)
        stop.set()
        await asyncio.wait_for(task, 20)
        await eventually(lambda: heard.notices and heard.states)
    assert not caplog.records


async def test_of_jobs_that_ended_only_the_newest_are_held(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwarden.controller.engine._MOST_ENDED", 3)
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus) as engine:
        for number in range(8):
            job = f"job-{number}"
            told = await begin(bus, job=job, uid=job)
            await Trainer(bus, job=job, run=job).report(1.0)
            await publish_facts(bus, facts(job=job, uid=job, phase=JobPhase.COMPLETE, created_at=told.created_at))
        await eventually(lambda: len({s.run.job for s in heard.states if s.job_phase == "Complete"}) == 8)
        assert engine.held == 3
        again = await begin(bus, job="job-0", uid="job-0", attempt="a-2")  # one that goes on after all
        await Trainer(bus, job="job-0", run="later").report(9.0)
        await eventually(lambda: heard.notices)
        assert engine.held == 4
    assert heard.notices[0].decision.run.attempt == again.attempt


async def test_a_job_that_comes_back_has_what_is_due_by_time_alone(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was let go: its first state in the engine's memory is an old one."""
    monkeypatch.setattr("trainwarden.controller.engine._MOST_ENDED", 0)
    await publish_policy(bus, policy("{name: high, when: metrics.loss > 5.0, actions: [{type: Notify, after: 1s}]}"))
    async with hearing(bus) as heard, running(bus) as engine:
        told = await begin(bus)
        await Trainer(bus).report(1.0)
        await publish_facts(bus, facts(phase=JobPhase.COMPLETE, created_at=told.created_at))
        await eventually(lambda: heard.states and heard.states[-1].job_phase == "Complete" and engine.held == 0)
        await begin(bus, attempt="a-2")
        await Trainer(bus, run="later").report(9.0)
        await eventually(lambda: heard.notices)


async def test_facts_of_a_job_that_can_not_be_judged_stop_no_other(bus: Bus) -> None:
    await publish_policy(bus, policy(HIGH))
    async with hearing(bus) as heard, running(bus):
        odd = facts(job="odd", uid="odd")
        await publish_facts(bus, facts(job="odd", uid="odd", time=odd.time.replace(tzinfo=None)))
        await publish_facts(bus, odd)
        await begin(bus)
        await Trainer(bus).report(9.0)
        await eventually(lambda: heard.notices)


async def test_an_action_that_nobody_has_begun_is_taken_back_for_all_to_see_when_its_rule_resolves(bus: Bus) -> None:
    await publish_policy(bus, policy("{name: high, when: metrics.loss > 5.0, actions: [{type: Delete}]}"))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        trainer = Trainer(bus)
        await trainer.report(9.0)
        await eventually(lambda: heard.requests)
        await trainer.until(lambda: "high Delete Cancelled" in heard.told, 1.0)
    assert heard.told == ["high Firing", "high Delete Requested", "high Resolved", "high Delete Cancelled"]
    assert heard.decisions[-1].action is not None
    assert heard.decisions[-1].action.id == heard.requests[0].action.id


STILL = "{name: still, when: progress.sinceStep > duration('2s'), actions: [{type: Suspend}]}"
SILENT = "{name: silent, when: progress.sinceReport > duration('2s'), actions: [{type: Delete}]}"


@pytest.mark.slow
async def test_a_server_that_stood_still_is_no_silence_of_the_training(server: NatsServer, bus: Bus) -> None:
    await publish_policy(bus, policy(f"[{STILL}, {SILENT}]"))
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        trainer = Trainer(bus)
        await trainer.report(1.0)
        await eventually(lambda: heard.states and heard.states[-1].step == 1)
        server.pause()
        await asyncio.sleep(6)
        server.resume()
        await trainer.report(1.0, step=1)  # a heartbeat, before the training has moved
        await asyncio.sleep(1)
        assert heard.told == []
        await trainer.until(lambda: len(heard.told) >= 2, 1.0, step=2)  # and what stands still from then on is found
    assert heard.told == ["still Firing", "still Suspend Requested"]


@pytest.mark.slow
async def test_an_engine_that_stood_still_judges_no_silence_before_it_has_read(server: NatsServer, bus: Bus) -> None:
    await publish_policy(bus, policy(f"[{STILL}, {SILENT}]"))
    other = await Bus.connect(server.url, token=server.token)
    async with hearing(bus) as heard, running(bus):
        await begin(bus)
        trainer = Trainer(other)
        await trainer.report(1.0)
        await eventually(lambda: heard.states and heard.states[-1].step == 1)
        time.sleep(6)  # the engine is not run meanwhile
        for _ in range(20):
            await trainer.report(1.0)
            await asyncio.sleep(0.1)
    await other.close()
    assert heard.told == []
