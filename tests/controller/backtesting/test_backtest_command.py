"""`trainwarden policy backtest`, as a user calls it."""

import json
import math
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from trainwarden.controller.backtesting.page import MOST_PICTURES
from trainwarden.controller.backtesting.wording import seconds, short_names
from trainwarden.controller.cli import main
from trainwarden.controller.cli_backtest import READERS
from trainwarden.controller.histories.formats import FORMATS

POLICY = """
apiVersion: trainwarden.dev/v1alpha1
kind: TrainingPolicy
metadata: {name: flat, namespace: team-a}
spec:
  mode: Enforce
  selector: {matchLabels: {tier: dev}}
  rules:
  - name: plateau
    when: stepsSinceBest("loss") >= 100
    actions: [{type: Notify}, {type: Suspend, after: 60s}]
  - {name: nonFinite, when: nonFinite("loss"), severity: critical}
"""


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    path = tmp_path / "flat.yaml"
    path.write_text(POLICY)
    return path


def curve(id_: str, values: list[float], **more: Any) -> str:
    """A run of one step each 10 s."""
    points = [[step, value if math.isfinite(value) else "nan"] for step, value in enumerate(values)]
    elapsed = [[step, 10.0 * step] for step in range(len(values))]
    return json.dumps(
        {"id": id_, "source": "x", "series": {"loss": points}, "elapsed": elapsed, "total_steps": None} | more
    )


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A run that goes flat, one that only seems to, one that falls, and one that is lost."""
    flat = [1.0 + 4 / (1 + step) for step in range(100)] + [1.5] * 300
    late = [1.0 + 4 / (1 + step) for step in range(100)] + [1.5] * 200 + [1.0 - step / 100 for step in range(50)]
    falls = [10 - step / 100 for step in range(400)]
    lost = [*falls[:200], math.nan, *falls[201:300]]
    path = tmp_path / "runs.jsonl"
    lines = [
        curve(f"toy/{name}/log", values)
        for name, values in (("flat", flat), ("late", late), ("falls", falls), ("lost", lost))
    ]
    path.write_text("\n".join(lines) + "\n")
    return path


def call(*arguments: object, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["policy", "backtest", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result


def test_a_recording_counts_once_however_often_it_is_named(policy: Path, history: Path) -> None:
    folder = history.parent / "more"
    folder.mkdir()
    inside = folder / "again.jsonl"
    inside.write_text(curve("inside", [float(step) for step in range(50)]) + "\n")
    odd = folder / ".." / history.name

    result = call("--policy", policy, "--format", "json", history, odd, history, folder, inside)

    assert [run["id"].rpartition("/")[2] for run in json.loads(result.stdout)["runs"]][-1] == "inside"
    assert json.loads(result.stdout)["totals"]["runs"] == 5


def test_a_run_that_can_not_be_read_is_left_out_where_malformed_places_are(policy: Path, history: Path) -> None:
    folder = history.parent / "states"
    for name, text in (("a", '{"log_history": [{"step": 1, "loss"'), ("b", "")):
        (folder / name).mkdir(parents=True)
        (folder / name / "trainer_state.json").write_text(text)

    assert "trainer_state.json" in call("--policy", policy, history, folder, code=2).output
    result = call("--policy", policy, "--format", "json", "--skip-malformed", history, folder)

    assert json.loads(result.stdout)["totals"]["runs"] == 4
    assert result.stderr.count("left out") >= 2


def test_json_tells_what_fired_and_what_it_was_worth(policy: Path, history: Path) -> None:
    found = json.loads(
        call(
            "--policy", policy, "--every-report", "--format", "json", "--gpus", 8, "--price-per-gpu-hour", 3, history
        ).stdout
    )

    assert list(found) == ["runs", "totals"]
    flat, late, falls, lost = found["runs"]
    assert (flat["id"], flat["lastStep"], flat["elapsedSeconds"]) == ("toy/flat/log", 399, 3990.0)
    first, second = flat["firings"]
    assert (first["policy"], first["rule"], first["metric"]) == ("flat", "plateau", "loss")
    assert (first["step"], first["elapsedSeconds"], first["action"]) == (199, 1990.0, "Notify")
    assert first["values"] == {'stepsSinceBest("loss")': 100}
    assert (second["elapsedSeconds"], second["action"]) == (2050.0, "Suspend")
    assert falls["firings"] == []
    assert [(each["rule"], each["step"], each["action"]) for each in lost["firings"]] == [("nonFinite", 200, None)]
    stop = late["outcomes"][0]["stop"]
    assert stop["wrong"]
    assert stop["toCome"] > 0.09
    totals = found["totals"]["policies"][0]
    assert (totals["runs"], totals["firedRuns"], totals["stops"], totals["wrongStops"]) == (4, 3, 2, 1)
    assert totals["gpuHoursSaved"] == pytest.approx((3990 - 2050) / 3600 * 8)
    assert totals["moneyLost"] == pytest.approx(2050 / 3600 * 24)
    assert found["totals"]["gpuHoursIdle"] > 0


def test_two_processes_find_the_same_as_one(policy: Path, history: Path) -> None:
    one, two = (
        call("--policy", policy, "--format", "json", "--processes", count, "--quiet", history).stdout
        for count in (1, 2)
    )

    assert one == two


def test_the_table_names_wrong_stops_first(policy: Path, history: Path) -> None:
    text = call("--policy", policy, "--every-report", history).stdout

    assert text.index("wrong stop") < text.index("right stop")
    assert re.search(r"late\s+flat\s+plateau\s+loss\s+199 of 349", text)
    assert re.search(r"flat\s+3 of 4 runs\s+2\s+1 \(25\.0%\)", text)


def test_what_could_not_be_judged_is_told_below_the_table_and_in_the_page(tmp_path: Path, history: Path) -> None:
    odd = tmp_path / "odd.yaml"
    odd.write_text(
        POLICY.replace('stepsSinceBest("loss")', 'stepsSinceBest("lss")').replace(
            "selector:", 'match: "job.gpus == 1"\n  selector:'
        )
    )
    page = tmp_path / "page.html"

    text = call("--policy", odd, "--html", page, history).stdout

    assert "flat/plateau had no value in any of 4 runs: " in text
    assert "flat/nonFinite had no value" not in text
    assert "flat/plateau had no value in any of 4 runs: " in page.read_text()
    assert "flat was not for 4 of 4 runs" in call("--policy", odd, "--gpus", 2, history).stdout


def test_a_curve_of_huge_values_has_numbers_at_its_axis(policy: Path, tmp_path: Path) -> None:
    page, huge = tmp_path / "page.html", tmp_path / "huge.jsonl"
    huge.write_text(
        curve("huge", [1.7e308, -1.7e308, *([1.0] * 300)]) + "\n" + curve("more", [1.7e308, -1.7e308] * 200) + "\n"
    )

    call("--policy", policy, "--html", page, huge)

    assert not re.search(r">(nan|inf|-inf)<|\bnan\b", page.read_text())


def test_selectors_count_once_the_labels_of_the_runs_are_given(policy: Path, history: Path) -> None:
    for label, fired in (("tier=dev", 3), ("tier=prod", 0)):
        found = json.loads(call("--policy", policy, "--label", label, "--format", "json", history).stdout)
        assert found["totals"]["policies"][0]["firedRuns"] == fired


class _Tags(HTMLParser):
    """Counts tags and sees that they are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_shows_each_run_that_fired(policy: Path, tmp_path: Path, history: Path) -> None:
    history.write_text(history.read_text().replace("toy/flat/log", "toy/<b>&/log"))
    page = tmp_path / "report.html"

    call("--policy", policy, "--html", page, history)

    text = page.read_text(encoding="utf-8")
    tags = _Tags()
    tags.feed(text)
    assert tags.open == []
    assert tags.links == []
    assert tags.counts["svg"] == 3
    assert "&lt;b&gt;&amp;" in text
    assert "http" not in text.replace("http-equiv", "")


def test_a_page_of_many_runs_stays_small(policy: Path, tmp_path: Path) -> None:
    path, page = tmp_path / "many.jsonl", tmp_path / "report.html"
    path.write_text("\n".join(curve(str(n), [1.0] * 150) for n in range(MOST_PICTURES + 5)))

    call("--policy", policy, "--html", page, "--processes", 1, path)

    assert page.read_text().count("<svg") == MOST_PICTURES
    assert "5 more runs are in the JSON" in page.read_text()


def test_malformed_lines_are_told_with_their_place_and_counted_when_left_out(policy: Path, history: Path) -> None:
    history.write_text(history.read_text().replace("[5, ", '["five", ', 1) + "{}\n")

    assert f"{history}:5: '{{}}'" in call("--policy", policy, history, code=2).stderr
    result = call("--policy", policy, "--skip-malformed", "--format", "json", history)
    assert json.loads(result.stdout)["totals"]["skipped"] == 2
    assert f"{history}:1: ['five', " in result.stderr
    assert f"{history}:5: '{{}}', left out" in result.stderr


def test_a_plan_may_be_given_where_the_history_has_none(policy: Path, history: Path) -> None:
    policy.write_text(POLICY.replace('stepsSinceBest("loss") >= 100', "progress.percent >= 50.0"))

    def steps(*more: str) -> list[int]:
        found = json.loads(call("--policy", policy, "--every-report", "--format", "json", *more, history).stdout)
        return [run["firings"][0]["step"] for run in found["runs"] if run["firings"]]

    assert steps() == [200]  # of nonFinite alone
    assert steps("--total-steps", "300") == [150] * 4
    assert steps("--total-steps", "last") == [200, 175, 200, 150]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["HISTORY"], "no policy"),
        (["--preset", "nonesuch", "HISTORY"], "nonesuch"),
        (["--policy", "POLICY", "--policy", "POLICY", "HISTORY"], "two policies of the name 'flat'"),
        (["--policy", "POLICY", "none.csv"], "no such file or folder"),
        (["--policy", "POLICY", "--total-steps", "0", "HISTORY"], "--total-steps '0'"),
        (["--policy", "POLICY", "--deadline", "soon", "HISTORY"], "--deadline 'soon'"),
        (["--policy", "POLICY", "--label", "tier", "HISTORY"], "KEY=VALUE"),
        (["--policy", "POLICY", "--price-per-hour", "1", "--price-per-gpu-hour", "1", "HISTORY"], "give one of them"),
        (["--policy", "POLICY", "--since", "24h", "HISTORY"], "no time of day"),
        (["--policy", "POLICY", "--html", "/nonesuch/a.html", "HISTORY"], "can't be written"),
    ],
)  # fmt: skip
def test_what_can_not_be_done_is_said(arguments: list[str], said: str, policy: Path, history: Path) -> None:
    given = [{"HISTORY": str(history), "POLICY": str(policy)}.get(each, each) for each in arguments]

    result = call(*given, code=2)

    assert said in result.stderr
    assert result.stdout == ""


def test_only_runs_of_the_last_day_are_taken(policy: Path, tmp_path: Path) -> None:
    import time

    path = tmp_path / "a.jsonl"
    now = time.time()
    path.write_text(
        "".join(
            json.dumps({"run": run, "step": step, "loss": 1.0, "timestamp": now - days * 86_400 + step}) + "\n"
            for run, days in (("old", 3), ("new", 0.5))
            for step in range(5)
        )
    )

    found = json.loads(call("--policy", policy, "--since", "24h", "--format", "json", path).stdout)

    assert [run["id"] for run in found["runs"]] == [f"{path}#new"]


def test_progress_goes_to_standard_error_and_the_real_command_works(policy: Path, history: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainwarden.controller.cli", "policy", "backtest", "--policy", str(policy),
         "--format", "json", str(history)],
        capture_output=True, check=True,
    )  # fmt: skip

    assert len(json.loads(done.stdout)["runs"]) == 4


def test_every_reader_can_be_named() -> None:
    assert sorted(READERS) == sorted(FORMATS)


@pytest.mark.parametrize(
    ("value", "said"), [(0, "0s"), (59.4, "59.4s"), (60, "1m"), (61, "1m 1s"), (7_260, "2h 1m"), (90_000, "1d 1h")]
)
def test_a_time_span_is_said_in_two_units(value: float, said: str) -> None:
    assert seconds(value) == said


def test_names_lose_what_they_have_in_common() -> None:
    names = ["a/x/1/log", "a/x/2/log", "b/y.txt", "c"]

    assert short_names(names) == {"a/x/1/log": "1", "a/x/2/log": "2", "b/y.txt": "b/y.txt", "c": "c"}
