"""Addresses are read from three places, and an error names the place, never the address."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainwarden.notifiers.urls import VARIABLE, ChannelUrlError, read_urls

SLACK = "https://hooks.slack.com/services/T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ"


def test_all_places_are_read_and_each_address_once(tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_text(f"# ours\n\n  {SLACK}\njson://127.0.0.1/b\n")
    file.chmod(0o600)

    found = read_urls(["json://127.0.0.1/a"], file=file, environment={VARIABLE: f"json://127.0.0.1/c {SLACK}"})

    assert found == ("json://127.0.0.1/a", SLACK, "json://127.0.0.1/b", "json://127.0.0.1/c")


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("s3cr3t", "--notify #2: has no scheme"),
        ("foo://s3cr3t", "--notify #2: foo:// is no service that is known"),
        ("slack://s3cr3t", "--notify #2: this slack:// URL is not complete"),
        ("mailto://:s3cr3t@", "--notify #2: this mailto:// URL"),
        ("https://example.org/s3cr3t", "for a hook of your own write json://"),
        ("syslog://s3cr3t", "--notify #2: syslog:// stays on this machine"),
    ],
)
def test_an_error_names_place_and_remedy_but_not_the_address(url: str, says: str) -> None:
    with pytest.raises(ChannelUrlError) as caught:
        read_urls(["json://127.0.0.1/a", url])

    assert says in str(caught.value)
    assert "s3cr3t" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_an_error_in_a_file_names_its_line(tmp_path: Path) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("# a\n\nfoo://s3cr3t\n")

    with pytest.raises(ChannelUrlError, match=r"urls\.txt:3: "):
        read_urls(file=file)


def test_a_missing_file_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(ChannelUrlError, match="cannot be read: No such file"):
        read_urls(file=tmp_path / "none.txt")


def test_a_file_that_everyone_can_read_is_warned_of(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "urls.txt"
    file.write_text("json://127.0.0.1/s3cr3t\n")
    file.chmod(0o644)

    read_urls(file=file)

    assert "readable by everyone" in caplog.text
    assert "s3cr3t" not in caplog.text
