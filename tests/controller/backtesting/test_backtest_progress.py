"""Progress is shown where people look, and only there."""

import pytest

from trainwarden.controller.backtesting import progress as module
from trainwarden.controller.backtesting.progress import Counted, progress
from trainwarden.controller.histories.recording import Opened, Reading
from trainwarden.policies.backtest.recording import Row


class Long:
    """A recording of 25,000 rows."""

    id = "long"

    def open(self, reading: Reading) -> Opened:
        return Opened((Row(step, {"loss": 1.0}) for step in range(25_000)), total=25_000)


def test_lines_tell_runs_and_rows_on_standard_error(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_EVERY", 0.0)

    with progress(2, quiet=False) as shown:
        opened = Counted(Long(), shown).open(Reading())
        assert (sum(1 for _ in opened.rows), opened.total) == (25_000, 25_000)
        shown.advance(1)

    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[0].startswith("trainwarden: 0 of 2 runs, 10,000 rows replayed in ")
    assert err.splitlines()[-1].startswith("trainwarden: 1 of 2 runs, 20,000 rows replayed in ")


def test_nothing_is_told_of_what_is_soon_done_or_when_told_to_be_quiet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress(2, quiet=False) as shown:
        shown.advance(2)
    monkeypatch.setattr(module, "_EVERY", 0.0)
    with progress(None, quiet=True) as shown:
        shown.advance(2)
        shown.read(10)

    assert capsys.readouterr() == ("", "")
