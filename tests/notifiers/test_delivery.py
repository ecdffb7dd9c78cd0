"""The dispatcher against real receivers: what reaches people, what is tried again, what is told of failures."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import apprise.plugins.slack
import msgspec
import pytest
from PIL import Image
from tests.notifiers.conftest import Mailbox, Receiver

from trainwarden.notifiers.delivery import Dispatcher, Retries
from trainwarden.policies.notice import Notice

QUICK = Retries(attempts=3, first=0.01, longest=0.02, limited=0.02)


def mail_url(box: Mailbox) -> str:
    return f"mailto://127.0.0.1:{box.port}?from=warden@example.org&to=ann@example.org&mode=insecure"


async def test_a_mail_has_text_html_the_picture_and_its_incident(mailbox: Mailbox, notice: Notice) -> None:
    dispatcher = Dispatcher({"default": [mail_url(mailbox)]}, retries=QUICK)

    results = await dispatcher.send(notice)
    await dispatcher.close()

    assert [(r.state, r.channel, r.target) for r in results] == [("delivered", "default", "mailto #1")]
    parts = {part.get_content_type(): part for part in mailbox.mails[0].walk()}
    assert "text/plain" in parts
    html = parts["text/html"].get_payload(decode=True)
    picture = parts["image/png"].get_payload(decode=True)
    assert isinstance(html, bytes)
    assert b"trainwarden resume llama-7b" in html
    assert isinstance(picture, bytes)
    assert Image.open(io.BytesIO(picture)).size == (1200, 600)
    assert mailbox.mails[0]["References"] == "<sample-incident@trainwarden.dev>"


async def test_slack_gets_mrkdwn_with_the_command_and_no_live_mention(
    receiver: Receiver, hostile: Notice, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook: Any = apprise.plugins.slack.NotifySlack
    monkeypatch.setattr(hook, "webhook_url", f"http://127.0.0.1:{receiver.port}")
    url = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"
    dispatcher = Dispatcher({"default": [url]}, retries=QUICK)

    results = await dispatcher.send(hostile)
    await dispatcher.close()

    assert (results[0].state, results[0].target) == ("delivered", "slack #1"), results
    sent = json.loads(receiver.bodies[0])["attachments"][0]
    assert "trainwarden resume llama-7b" in sent["text"]
    assert "*Condition:*" in sent["text"]
    for text in (sent["text"], sent["title"]):
        assert "<" not in text
    assert "@everyone" not in sent["text"] + sent["title"]


@pytest.mark.parametrize("scheme", ["json", "mmost"])
async def test_a_hook_gets_the_message(receiver: Receiver, notice: Notice, scheme: str) -> None:
    path = "x" if scheme == "json" else "3ccdd113474722377935511fc85d3dd4"
    dispatcher = Dispatcher({"team": [f"{scheme}://127.0.0.1:{receiver.port}/{path}"]}, retries=QUICK)

    results = await dispatcher.send(msgspec.structs.replace(notice, channels=("team",)))
    await dispatcher.close()

    assert results[0].state == "delivered", results
    assert b"trainwarden resume llama-7b" in receiver.bodies[0]
    assert (b"image/png" in receiver.bodies[0]) is (scheme == "json")


@pytest.mark.parametrize(
    ("answers", "state", "attempts", "reason"),
    [
        (["500", "500", "200"], "delivered", 3, ""),
        (["429", "200"], "delivered", 2, ""),
        (["408", "200"], "delivered", 2, ""),
        (["500"], "failed", 3, "HTTP 500 Internal Server Error"),
        (["404"], "failed", 1, "HTTP 404 Not Found"),
        (["302"], "failed", 1, "HTTP 302 Found: redirects are not followed"),
        (["close"], "failed", 3, "connection refused, lost or timed out"),
    ],
    ids=["500 then fine", "429 then fine", "408 then fine", "500 for good", "404", "redirect", "closed early"],
)
async def test_what_may_work_later_is_tried_again(
    receiver: Receiver, notice: Notice, answers: list[str], state: str, attempts: int, reason: str
) -> None:
    receiver.answers = answers
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=QUICK)

    results = await dispatcher.send(notice)
    await dispatcher.close()

    assert (results[0].state, results[0].attempts, results[0].reason) == (state, attempts, reason)
    assert "/inside" not in receiver.paths


async def test_a_hanging_hook_holds_up_no_other(receiver: Receiver, mailbox: Mailbox, notice: Notice) -> None:
    receiver.answers = ["hang"]
    hook = f"json://127.0.0.1:{receiver.port}/x"
    dispatcher = Dispatcher({"default": [hook, mail_url(mailbox)]}, retries=Retries(attempts=1), timeout=1.0)

    results = await dispatcher.send(notice)
    receiver.end.set()
    await dispatcher.close()

    assert [r.state for r in results] == ["failed", "delivered"]
    assert results[0].reason == "no answer within 1 s"


async def test_messages_of_one_incident_come_in_their_order_whatever_takes_longer(
    receiver: Receiver, mailbox: Mailbox, notice: Notice
) -> None:
    bare = msgspec.structs.replace(notice, curve=None, action_id="")  # made at once; the first draws a picture
    notices = [notice, *(msgspec.structs.replace(bare, id=f"later {number}") for number in range(3))]
    receiver.answers = ["500", "200"]  # and the first has to be tried twice
    urls = [f"json://127.0.0.1:{receiver.port}/x", mail_url(mailbox)]
    dispatcher = Dispatcher({"default": urls}, retries=QUICK)

    tasks = [asyncio.create_task(dispatcher.send(each)) for each in notices]
    await asyncio.gather(*tasks)
    await dispatcher.close()

    titles = [json.loads(body)["title"] for body in receiver.bodies]
    first, later = "[Warning] team-a/llama-7b", "[Warning, update] team-a/llama-7b"
    assert [title.partition(":")[0] for title in titles] == [first, first, later, later, later]
    assert [mail["Subject"].partition(":")[0] for mail in mailbox.mails] == [first, later, later, later]


async def test_an_incident_that_is_tried_again_holds_up_no_other(
    receiver: Receiver, notice: Notice, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    receiver.answers = ["500", "200"]
    other = msgspec.structs.replace(notice, id="other", incident="another")
    retries = Retries(attempts=2, first=600.0, longest=600.0, max_age=3600.0)
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=retries)

    waiting = asyncio.create_task(dispatcher.send(notice))
    await asyncio.to_thread(wait_for, lambda: bool(receiver.bodies))
    (result,) = await dispatcher.send(other)

    assert (result.state, waiting.done()) == ("delivered", False)
    await dispatcher.close()
    assert (await waiting)[0].state == "failed"


async def test_a_notice_is_sent_once_and_only_failed_targets_are_tried_again(
    receiver: Receiver, mailbox: Mailbox, notice: Notice
) -> None:
    receiver.answers = ["404", "200"]
    urls = [f"json://127.0.0.1:{receiver.port}/x", mail_url(mailbox)]
    dispatcher = Dispatcher({"default": urls}, retries=QUICK)

    first, same = await asyncio.gather(dispatcher.send(notice), dispatcher.send(notice))
    second = await dispatcher.send(notice)
    third = await dispatcher.send(notice)
    await dispatcher.close()

    assert first == same
    assert [r.state for r in first] == ["failed", "delivered"]
    assert [r.state for r in second] == [r.state for r in third] == ["delivered", "delivered"]
    assert (len(receiver.bodies), len(mailbox.mails)) == (2, 1)


async def test_an_unknown_channel_fails_and_names_the_known(
    receiver: Receiver, notice: Notice, caplog: pytest.LogCaptureFixture
) -> None:
    dispatcher = Dispatcher({"team-a": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=QUICK)

    results = await dispatcher.send(msgspec.structs.replace(notice, channels=("team-a", "taem-a")))
    await dispatcher.close()

    assert [r.state for r in results] == ["delivered", "failed"]
    assert results[1].reason == "unknown channel 'taem-a'; known are team-a"
    assert "delivery failed" in caplog.text


async def test_no_secret_reaches_a_result_or_a_log(
    receiver: Receiver, notice: Notice, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    receiver.answers = ["403"]
    url = f"json://ann:hunter2@127.0.0.1:{receiver.port}/s3cr3t?+X-Tok=t0k3n"
    dispatcher = Dispatcher({"default": [url]}, retries=QUICK)

    results = await dispatcher.send(notice)
    await dispatcher.close()

    ours = "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith("urllib3"))
    for secret in ("hunter2", "s3cr3t", "t0k3n"):
        assert secret not in repr(results) + ours
    assert "target='json #1'" in ours


async def test_a_refused_private_address_is_never_spoken_to(receiver: Receiver, notice: Notice) -> None:
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, public_only=True)

    results = await dispatcher.send(notice)
    await dispatcher.close()

    assert results[0].reason == "the host's address is not public"
    assert receiver.bodies == []


async def test_cancelling_the_caller_loses_no_message(receiver: Receiver, notice: Notice) -> None:
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=QUICK)

    task = asyncio.create_task(dispatcher.send(notice))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    results = await dispatcher.send(notice)
    await dispatcher.close()

    assert results[0].state == "delivered"
    assert len(receiver.bodies) == 1


async def test_closing_ends_a_delivery_under_way_with_a_result(
    receiver: Receiver, notice: Notice, wait_for: Callable[[Callable[[], bool]], None]
) -> None:
    receiver.answers = ["hang"]
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, timeout=2.0)

    task = asyncio.create_task(dispatcher.send(notice))
    await asyncio.to_thread(wait_for, lambda: bool(receiver.bodies))
    await dispatcher.close()
    results = await task
    receiver.end.set()

    assert results[0].reason == "the dispatcher was closed before an answer"


async def test_a_closed_dispatcher_says_so(notice: Notice) -> None:
    dispatcher = Dispatcher({})
    await dispatcher.close()

    results = await dispatcher.send(notice)

    assert results[0].reason == "the dispatcher is closed"


async def test_an_answer_that_never_ends_fails_in_time_and_is_one_message(receiver: Receiver, notice: Notice) -> None:
    receiver.answers = ["drip", "200"]
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=QUICK, timeout=0.2)

    (dripping,) = await dispatcher.send(notice)
    (after,) = await dispatcher.send(msgspec.structs.replace(notice, id="other", incident="another"))
    receiver.end.set()
    await dispatcher.close()

    assert (dripping.state, dripping.attempts, dripping.reason) == ("failed", 3, "no answer within 0.2 s")
    assert after.state == "delivered"
    assert len(receiver.bodies) == 2


async def test_a_service_that_ends_no_answer_gets_only_so_many_messages(receiver: Receiver, notice: Notice) -> None:
    receiver.answers = ["drip"]
    once = Retries(attempts=1)
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=once, timeout=0.2)

    results = [
        await dispatcher.send(msgspec.structs.replace(notice, id=f"n{number}", incident=f"i{number}"))
        for number in range(6)
    ]
    receiver.end.set()
    await dispatcher.close()

    reasons = [result.reason for (result,) in results]
    assert reasons[:4] == ["no answer within 0.2 s"] * 4
    assert reasons[4:] == ["the service has not ended its answers to earlier messages"] * 2
    assert len(receiver.bodies) == 4


async def test_closing_tells_why_the_last_attempt_failed(
    receiver: Receiver,
    notice: Notice,
    wait_for: Callable[[Callable[[], bool]], None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    receiver.answers = ["429"]
    dispatcher = Dispatcher({"default": [f"json://127.0.0.1:{receiver.port}/x"]}, retries=Retries(limited=300.0))

    task = asyncio.create_task(dispatcher.send(notice))
    await asyncio.to_thread(wait_for, lambda: "will retry" in caplog.text)
    await dispatcher.close()
    (result,) = await task

    assert (result.state, result.attempts) == ("failed", 1)
    assert result.reason == "HTTP 429 Too Many Requests; no time was left to try again"


def test_a_process_exits_though_an_answer_never_ends(receiver: Receiver) -> None:
    receiver.answers = ["drip"]
    program = f"""
import asyncio
from trainwarden.notifiers.delivery import Dispatcher, Retries
from trainwarden.notifiers.preview import sample

async def main():
    retries = Retries(attempts=1)
    dispatcher = Dispatcher({{"default": ["json://127.0.0.1:{receiver.port}/x"]}}, retries=retries, timeout=0.2)
    task = asyncio.create_task(dispatcher.send(sample()))
    await asyncio.wait({{task}}, timeout=20)
    await dispatcher.close()
    print((await task)[0].reason)

asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert ended.stdout.strip() == "no answer within 0.2 s"
