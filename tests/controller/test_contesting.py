"""People are told how to object in a way that works where the training runs."""

from __future__ import annotations

from pathlib import Path

from trainwarden.controller.contesting import Contestable, locally
from trainwarden.notifiers.delivery import DeliveryResult
from trainwarden.notifiers.preview import sample
from trainwarden.policies.notice import Notice


class Kept:
    """A sender that keeps what it is given."""

    def __init__(self) -> None:
        self.notices: list[Notice] = []

    async def send(self, notice: Notice) -> tuple[DeliveryResult, ...]:
        self.notices.append(notice)
        return ()


async def test_each_notice_gets_the_sentence_of_its_place() -> None:
    kept = Kept()

    await Contestable(kept, locally(None)).send(sample())

    assert kept.notices[0].contest == "edit the policy, and give it with --policy when you run or resume"


def test_the_decision_log_is_spoken_of_only_where_there_is_one() -> None:
    assert "values" not in locally(None)
    assert locally(Path("/w/log.jsonl")).startswith("/w/log.jsonl has all values under this id; ")
