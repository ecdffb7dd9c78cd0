"""Locked versions carry hashes, and say nothing of where they came from."""

from pathlib import Path

import pytest

LOCKS = sorted(Path(__file__).parents[2].glob("requirements/*.txt"))


@pytest.mark.parametrize("lock", LOCKS, ids=[lock.name for lock in LOCKS])
def test_a_lock_has_a_hash_for_each_version_and_no_address(lock: Path) -> None:
    text = lock.read_text()
    entries = text.replace("\\\n", " ").splitlines()

    assert entries
    assert [entry for entry in entries if "==" not in entry or "--hash=sha256:" not in entry] == []
    assert "://" not in text
    assert "index-url" not in text
    assert "find-links" not in text
