"""What docs/backtest.md says of options, readers and fields is so."""

import re
from pathlib import Path

import click
import msgspec

from trainwarden.controller.cli_backtest import policy_backtest
from trainwarden.controller.histories.formats import FORMATS
from trainwarden.policies.backtest.outcome import Firing, PolicyOutcome, Replay, Stop
from trainwarden.policies.backtest.recording import Setting
from trainwarden.policies.backtest.summing import PolicyTotal, Totals, Unjudged
from trainwarden.policies.backtest.track import MOST_BUCKETS

PAGE = (Path(__file__).parents[3] / "docs" / "backtest.md").read_text(encoding="utf-8")


def test_every_option_in_the_page_exists() -> None:
    known = {name for each in policy_backtest.params if isinstance(each, click.Option) for name in each.opts}

    told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", PAGE)) - {"--log"}

    assert told - known == set()


def test_every_reader_is_in_the_page() -> None:
    table = PAGE.partition("| `--reader` |")[2].partition("\n\n")[0]

    assert set(re.findall(r"^\| `([\w-]+)` \|", table, re.MULTILINE)) == set(FORMATS)


def test_every_field_of_the_json_is_in_the_page() -> None:
    text = PAGE.partition("## The JSON")[2]
    told = set(re.findall(r"`(\w+)`", text))

    for kind in (Replay, Firing, PolicyOutcome, Stop, Totals, PolicyTotal, Unjudged):
        names = {field.encode_name for field in msgspec.structs.fields(kind)}
        assert names - told <= {"curves"}, kind.__name__


def test_the_numbers_in_the_page_are_those_of_the_code() -> None:
    assert f"1/{Setting().fineness:g} of the time" in PAGE
    assert f"Up to {MOST_BUCKETS} values" in PAGE
    assert f"{MOST_BUCKETS // 2} to {MOST_BUCKETS} equal parts" in PAGE
