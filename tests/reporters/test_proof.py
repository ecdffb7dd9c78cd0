"""The proof of a checkpoint: what it covers, and when there is none."""

import hashlib
import os
from pathlib import Path

import pytest

from trainwarden.reporters import proof
from trainwarden.reporters.proof import INCOMPLETE_MARKER, Measured, ProofError, measure, verify
from trainwarden.reporters.wire import Checkpoint


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    root = tmp_path / "checkpoint-10"
    (root / "b").mkdir(parents=True)
    (root / "model.bin").write_bytes(b"weights")
    (root / "b" / "state.bin").write_bytes(b"")
    (root / "b.txt").write_bytes(b"x")
    return root


def test_the_digest_covers_paths_sizes_and_contents_in_order(checkpoint: Path) -> None:
    parts = b"b.txt\x001\x00x" + b"b/state.bin\x000\x00" + b"model.bin\x007\x00weights"

    assert measure(checkpoint) == Measured(8, "sha256:" + hashlib.sha256(parts).hexdigest())


def test_a_single_file_is_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"weights")

    assert measure(str(tmp_path / "model.pt")) == Measured(
        7, "sha256:" + hashlib.sha256(b".\x007\x00weights").hexdigest()
    )


@pytest.mark.parametrize("change", ["content", "name", "more", "less"])
def test_any_change_gives_another_digest(checkpoint: Path, change: str) -> None:
    before = measure(checkpoint)
    if change == "content":
        (checkpoint / "model.bin").write_bytes(b"Weights")
    elif change == "name":
        (checkpoint / "model.bin").rename(checkpoint / "model2.bin")
    elif change == "more":
        (checkpoint / "more.bin").touch()
    else:
        (checkpoint / "b" / "state.bin").unlink()

    assert measure(checkpoint).digest != before.digest


def test_a_moved_checkpoint_has_the_same_digest(checkpoint: Path) -> None:
    before = measure(checkpoint)

    assert measure(checkpoint.rename(checkpoint.with_name("elsewhere"))) == before


def test_links_are_not_followed(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "huge.bin").write_bytes(b"0" * 1000)
    before = measure(checkpoint)
    (checkpoint / "link").symlink_to(tmp_path / "outside")
    (checkpoint / "loop").symlink_to(checkpoint)

    found = measure(checkpoint)

    assert found.bytes == before.bytes
    assert found.digest != before.digest


def test_a_link_to_the_checkpoint_itself_is_followed(checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(checkpoint)

    assert measure(tmp_path / "latest") == measure(checkpoint)


def test_what_is_being_written_is_no_checkpoint(checkpoint: Path) -> None:
    (checkpoint / INCOMPLETE_MARKER).touch()

    with pytest.raises(ProofError, match="still being written"):
        measure(checkpoint)


def test_what_is_not_there_or_empty_or_odd_is_no_checkpoint(tmp_path: Path, checkpoint: Path) -> None:
    (tmp_path / "empty" / "inner").mkdir(parents=True)
    (checkpoint / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "with-pipe").mkdir()
    os.mkfifo(tmp_path / "with-pipe" / "pipe")

    cases: list[tuple[str | Path, str]] = [
        (tmp_path / "nowhere", "vanished or never was"),
        (tmp_path / "empty", "holds no file"),
        (checkpoint, "link to nothing"),
        (tmp_path / "pipe", "neither a folder nor a regular file"),
        (tmp_path / "with-pipe", "no regular file"),
        ("bad\0path", "can't be read"),
    ]
    for path, why in cases:
        with pytest.raises(ProofError, match=why):
            measure(path)


@pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs a file that has more in it than its size says"
)
def test_a_file_that_grows_while_it_is_read_spoils_the_proof() -> None:
    with pytest.raises(ProofError, match="changed while"):
        measure("/proc/self/status")


def test_files_that_vanish_while_they_are_measured_spoil_the_proof(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = proof._add

    def add(total: proof._Hash, relative: bytes | str, file: Path) -> int:
        (checkpoint / "model.bin").unlink(missing_ok=True)
        return real(total, relative, file)

    monkeypatch.setattr(proof, "_add", add)

    with pytest.raises(ProofError, match="vanished"):
        measure(checkpoint)


def test_a_checkpoint_is_verified_against_its_proof(checkpoint: Path) -> None:
    found = measure(checkpoint)
    good = Checkpoint(10, str(checkpoint), found.bytes, found.digest)
    assert verify(good) == found

    for bad, why in [
        (Checkpoint(10, str(checkpoint)), "no digest"),
        (Checkpoint(10, str(checkpoint), found.bytes + 1, found.digest), "bytes"),
        (Checkpoint(10, str(checkpoint), found.bytes, "sha256:" + "0" * 64), "digest"),
    ]:
        with pytest.raises(ProofError, match=why):
            verify(bad)
