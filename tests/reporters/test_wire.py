"""Both ends of the wire agree: recorded messages, JSON Schemas, and what the code makes and reads."""

import dataclasses
import json
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from trainwarden.reporters.wire import (
    MAX_BYTES,
    Checkpoint,
    Command,
    Reply,
    Report,
    TooLargeError,
    WireError,
    command_subject,
    decode_command,
    decode_reply,
    encode,
    report_subject,
)

MESSAGES = sorted((Path(__file__).parent / "messages").glob("*.json"))
DECODERS: dict[str, Callable[[bytes], Command | Reply]] = {"command": decode_command, "reply": decode_reply}


def schema(what: str) -> Any:
    return json.loads((files("trainwarden.reporters") / "schema" / f"{what}.json").read_text(encoding="utf-8"))


def validator(what: str) -> Any:
    return jsonschema.Draft202012Validator(schema(what))


def named(*parts: str) -> list[Any]:
    found = [path for path in MESSAGES if any(path.name.startswith(part) for part in parts)]
    assert found
    return [pytest.param(path, id=path.stem) for path in found]


@pytest.mark.parametrize("what", ["report", "command", "reply"])
def test_a_schema_is_a_schema_and_describes_every_field(what: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema(what))

    assert all("description" in field for field in schema(what)["properties"].values())


@pytest.mark.parametrize(("what", "kind"), [("report", Report), ("command", Command), ("reply", Reply)])
def test_a_schema_has_the_fields_of_the_code(what: str, kind: type) -> None:
    fields = dataclasses.fields(kind)
    required = {field.name for field in fields if field.default is field.default_factory is dataclasses.MISSING}

    assert set(schema(what)["properties"]) == {field.name for field in fields}
    assert set(schema(what)["required"]) == required | {"v"}


@pytest.mark.parametrize("path", named("report-good", "command-good", "reply-good"))
def test_a_good_message_fits_its_schema(path: Path) -> None:
    validator(path.name.partition("-")[0]).validate(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", named("report-bad", "command-bad", "reply-bad"))
def test_a_bad_message_does_not_fit_its_schema(path: Path) -> None:
    try:
        message = json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return

    assert not validator(path.name.partition("-")[0]).is_valid(message)


@pytest.mark.parametrize("path", named("command-good", "reply-good"))
def test_a_good_command_or_reply_is_read(path: Path) -> None:
    message = json.loads(path.read_text(encoding="utf-8"))

    read = DECODERS[path.name.partition("-")[0]](path.read_bytes())

    assert read.id == message["id"]
    assert read.run == message["run"]


@pytest.mark.parametrize("path", named("command-bad", "reply-bad"))
def test_a_bad_command_or_reply_is_refused_with_a_reason(path: Path) -> None:
    with pytest.raises(WireError, match=r"right|not JSON|carries"):
        DECODERS[path.name.partition("-")[0]](path.read_bytes())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"null",
        b'{"v":1,"id":"a","run":"b","op":"checkpoint","timeout":NaN}',
        b'{"v":true}',
    ],
    ids=["empty", "no UTF-8", "deeply nested", "null", "timeout NaN", "version true"],
)
def test_noise_is_refused(data: bytes) -> None:
    with pytest.raises(WireError):
        decode_command(data)
    with pytest.raises(WireError):
        decode_reply(data)


SAVED = Checkpoint(step=9, path="/out/checkpoint-9", bytes=12, digest="sha256:" + "0" * 64)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("report", Report(run="r", seq=0, ts=1.5, pod="p", phase="init", step=0)),
        (
            "report",
            Report("r", 1, 1.5, "p", "train", 7, total=9, epoch=0.5, metrics={"損失": 0.1}, nonfinite={"a": "NaN"}),
        ),
        (
            "report",
            Report("r", 2, 1.5, "p", "failed", 7, checkpoint=SAVED, dropped=3, trimmed=1, reason="out of memory"),
        ),
        ("command", Command(id="c", run="r", op="stop", hold=True, timeout=1.5)),
        ("reply", Reply(id="c", run="r", state="saved", checkpoint=SAVED)),
        ("reply", Reply(id="c", run="r", state="failed", reason="no space")),
    ],
)
def test_what_the_code_makes_fits_the_schema(what: str, message: Report | Command | Reply) -> None:
    body = json.loads(encode(message))

    validator(what).validate(body)
    assert None not in body.values()


@pytest.mark.parametrize(
    "command", [Command("c", "r", "stop", hold=True, timeout=1.5, holdFor=2), Command("c", "r", "release")]
)
def test_a_command_is_read_as_it_was_made(command: Command) -> None:
    assert decode_command(encode(command)) == command


@pytest.mark.parametrize("reply", [Reply("c", "r", "saved", checkpoint=SAVED), Reply("c", "r", "failed", reason="why")])
def test_a_reply_is_read_as_it_was_made(reply: Reply) -> None:
    assert decode_reply(encode(reply)) == reply


def test_a_number_that_is_not_finite_has_no_place_in_metrics() -> None:
    with pytest.raises(WireError, match="not finite"):
        encode(Report("r", 0, 1.0, "p", "train", 1, metrics={"loss": float("nan")}))


def test_a_message_over_the_limit_is_refused() -> None:
    with pytest.raises(TooLargeError, match=str(MAX_BYTES)):
        encode(Reply("c", "r", "failed", reason="x" * MAX_BYTES))


def test_a_lone_surrogate_does_not_break_the_encoding() -> None:
    assert json.loads(encode(Report("r", 0, 1.0, "p", "train", 1, metrics={"loss\udcff": 1.0})))["metrics"] == {
        "loss?": 1.0
    }


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", ">", "ü", "x" * 254, "a\n"])
def test_a_name_that_would_change_the_subject_is_refused(name: str) -> None:
    with pytest.raises(WireError, match="subject"):
        report_subject("team-a", name)
    with pytest.raises(WireError, match="subject"):
        command_subject(name, "job")
