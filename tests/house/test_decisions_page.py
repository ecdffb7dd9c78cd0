"""docs/decisions.md and docs/architecture.md name what the code can give."""

from __future__ import annotations

import re
from pathlib import Path

from trainwarden.controller.streams import StreamLimits
from trainwarden.controller.streams import _streams as streams

ROOT = Path(__file__).parents[2]
POLICIES = ROOT / "policies" / "trainwarden" / "policies"


def test_every_reason_of_a_verdict_is_explained() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    ends = re.findall(r'_end\([^\n]*?"([A-Z]\w+)"', (POLICIES / "judge.py").read_text(encoding="utf-8"))
    given = re.findall(r'Verdict\.\w+: "(\w+)"', (POLICIES / "explaining.py").read_text(encoding="utf-8"))
    left = re.findall(r'reason, message = "(\w+)"', (POLICIES / "judge.py").read_text(encoding="utf-8"))

    assert {"PolicyDeleted", "PolicyChanged"} <= set(ends)
    assert [reason for reason in {*ends, *given, *left} if f"| `{reason}` |" not in page] == []


def test_what_the_streams_keep_is_what_the_page_says() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    kept = dict(re.findall(r"^\| `(TW_\w+)` .*\| ([^|]+) \|$", page, re.MULTILINE))

    for stream in streams(StreamLimits()):
        assert stream["retention"] == "limits"
        days = stream.get("max_age", 0) / 86_400e9
        if days == 30:
            assert kept[stream["name"]].startswith("30 days"), stream["name"]
