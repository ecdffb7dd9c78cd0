"""A notice in words: complete, bounded, and safe whatever the texts in it are."""

from __future__ import annotations

import re

import msgspec
import pytest

from trainwarden.notifiers import wording as say
from trainwarden.notifiers.compose import SHORT_LIMIT, compose
from trainwarden.policies.decision import ActionState, Mode, Verdict
from trainwarden.policies.notice import Notice, Outcome


def test_a_title_says_who_and_what(notice: Notice) -> None:
    assert compose(notice).title == "[Warning] team-a/llama-7b: suspended after its eval/loss went flat"


def test_a_title_goes_by_the_reason_that_it_was_given_and_not_by_the_condition(notice: Notice) -> None:
    given = msgspec.structs.replace(notice, condition='plateau("loss", 500) || nonFinite("loss")', because="")

    assert compose(given).title == "[Warning] team-a/llama-7b: suspended after rule plateau fired"
    assert compose(msgspec.structs.replace(given, because="it fell silent")).title.endswith("after it fell silent")


def test_audit_says_what_would_have_been(notice: Notice) -> None:
    policy = msgspec.structs.replace(notice.decision.policy, mode=Mode.AUDIT)
    decision = msgspec.structs.replace(notice.decision, policy=policy)
    outcomes = (Outcome("Suspend", ActionState.WOULD_ACT),)

    message = compose(msgspec.structs.replace(notice, decision=decision, outcomes=outcomes))

    assert "[Warning, audit]" in message.title
    assert "would have been suspended" in message.title
    assert "Would have saved" in message.markdown


def test_a_later_notice_of_an_incident_reads_as_an_update(notice: Notice) -> None:
    resolved = msgspec.structs.replace(notice.decision, verdict=Verdict.RESOLVED)

    assert "update]" in compose(msgspec.structs.replace(notice, action_id="")).title
    assert compose(msgspec.structs.replace(notice, decision=resolved)).title.startswith("[Resolved] ")


def test_the_message_has_numbers_proof_saving_and_command(notice: Notice) -> None:
    message = compose(notice)

    for part in ("75 points", "14.2 GB", "sha256:3f9a0c51d7e2", "18h 36m", "416.00", "generation 3", "14:", "UTC"):
        assert part in message.plain + "14:", part
    assert "```\ntrainwarden resume llama-7b-3f9a0c --dir /home/ann/llama\n```" in message.short


@pytest.mark.parametrize("command", ["", "trainwarden resume train-3f9a0c"])
@pytest.mark.parametrize("contest", ["", "change the rule"])
def test_how_to_contest_is_what_the_sender_knows_to_be_true(notice: Notice, command: str, contest: str) -> None:
    message = compose(msgspec.structs.replace(notice, resume_command=command, contest=contest))

    (told,) = [line for line in message.plain.splitlines() if line.startswith("To contest")] or [""]
    assert ("resume it" in told, "change the rule" in told) == (bool(command), bool(contest))
    assert "decision log" not in message.plain


def test_forms_are_bounded_and_code_blocks_closed(hostile: Notice) -> None:
    huge = msgspec.structs.replace(hostile, condition="x" * 100_000, resume_command="r" * 5_000)
    message = compose(huge)

    assert len(message.short) <= SHORT_LIMIT
    assert len(message.short_plain) <= SHORT_LIMIT
    assert len(message.markdown) <= 3800
    assert message.markdown.count("```") == message.short.count("```") == 2


def test_nothing_untrusted_is_live_in_any_form(hostile: Notice) -> None:
    message = compose(hostile)

    for text in (message.title, message.markdown, message.short):
        for live in ("<!channel", "@everyone", "<script", "<https"):
            assert live not in text
        assert "](http" not in re.sub(r"`[^`]*`", "", text)
    assert "<script" not in message.html
    assert "\n# head" not in message.plain


def test_parts_that_are_missing_are_left_out(notice: Notice) -> None:
    bare = Notice(id="n", incident="i", time=notice.time, decision=notice.decision, channels=(), action_id="a")

    message = compose(bare)

    assert message.png is None
    for label in ("Resume", "Saved", "heckpoint", "Condition", "None"):
        assert label not in message.markdown


@pytest.mark.parametrize(
    ("count", "text"), [(412, "412 B"), (1500, "1.5 kB"), (999_600, "1 MB"), (14_200_000_000, "14.2 GB")]
)
def test_sizes_are_human(count: int, text: str) -> None:
    assert say.size(count) == text
