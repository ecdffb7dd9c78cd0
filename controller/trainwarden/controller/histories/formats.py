"""Find out which format a file or folder has, and list its runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from trainwarden.controller.histories import (
    curves,
    decisions,
    jsonl,
    megatron,
    mlflow,
    mllog,
    printed,
    table,
    tensorboard,
    trainer_state,
)
from trainwarden.controller.histories.columns import columns_of
from trainwarden.controller.histories.files import document, head, lines
from trainwarden.controller.histories.recording import (
    DamagedError,
    HistoryError,
    NoHistoryError,
    Reading,
    Recording,
)
from trainwarden.controller.histories.values import parse_json, short

__all__ = ["FORMATS", "recordings_in"]

_Reader = Callable[[Path, Reading], Iterable[Recording]]

FORMATS: dict[str, _Reader] = {
    "curves": curves.recordings,
    "csv": table.recordings,
    "decisions": decisions.recordings,
    "dicts": lambda path, _: printed.recordings(path, "dicts"),
    "json": jsonl.recordings_of_json,
    "jsonl": jsonl.recordings,
    "megatron": megatron.recordings,
    "megatron-log": lambda path, _: printed.recordings(path, "megatron-log"),
    "mlflow": lambda path, reading: _mlflow(path, reading),
    "mllog": mllog.recordings,
    "nanogpt": lambda path, _: printed.recordings(path, "nanogpt"),
    "tensorboard": lambda path, reading: _tensorboard(path, reading),
    "trainer_state": trainer_state.recordings,
    "verl": lambda path, _: printed.recordings(path, "verl"),
}  # fmt: skip
"""Readers by the name that `--reader` takes."""

_KNOWN = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".db", ".sqlite", ".sqlite3", ".log", ".txt")
_TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".db", ".sqlite", ".sqlite3")
_PACKED = (".gz", ".bz2", ".xz")
_CONFIGURATION = frozenset({"config.json", "hparams.json", "tokenizer.json", "tokenizer_config.json", "package.json",
                            "generation_config.json", "special_tokens_map.json", "vocab.json"})  # fmt: skip


def recordings_in(path: Path, reading: Reading, *, reader: str | None = None) -> Iterator[Recording]:
    """The runs of a file, or of all files in a folder; no two that are found with one `reading` have the same id.

    Args:
        path: File or folder.
        reading: How to read.
        reader: A name of FORMATS; None finds out.

    Raises:
        HistoryError: There is nothing that can be read.
    """
    for each in _recordings_in(path, reading, reader):
        named = _distinct(each, reading.ids)
        reading.ids.add(named.id)
        yield named


def _distinct(recording: Recording, known: Collection[str]) -> Recording:
    """The recording, with its place behind its id where another one has the same, and else a number."""
    if recording.id not in known:
        return recording
    line = getattr(recording, "line", None)
    place = f"{getattr(recording, 'path', '')}{f':{line}' if line is not None else ''}"
    id_ = name = f"{recording.id} ({place})" if place and place not in recording.id else recording.id
    again = 1
    while name in known:
        again += 1
        name = f"{id_} #{again}"
    return cast("Recording", replace(cast("Any", recording), id=name))


def _recordings_in(path: Path, reading: Reading, reader: str | None) -> Iterator[Recording]:
    if not path.exists():
        raise HistoryError(str(path), "no such file or folder", "name a file or folder with histories")
    if path.is_dir():
        yield from _folder(path, reading, reader)
        return
    try:
        yield from FORMATS[reader or _format_of(path)](path, reading)
    except DamagedError as error:
        _leave_out(error, reading)


def _leave_out(error: DamagedError, reading: Reading) -> None:
    if not reading.skip:
        raise DamagedError(
            error.place, error.found, f"{error.remedy}; --skip-malformed leaves such files out"
        ) from error
    reading.left_out(f"{error.place}: {error.found}")


def _folder(folder: Path, reading: Reading, reader: str | None) -> Iterator[Recording]:
    if reader == "mlflow" or (reader is None and mlflow.run_folders(folder)):
        yield from _mlflow(folder, reading)
        return
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not _is_hidden(path, folder))
    if reader == "tensorboard":
        yield from _tensorboard(folder, reading)
        return
    if reader is not None:
        if not files:
            raise HistoryError(str(folder), "no files in this folder", "name another")
        for path in files:
            try:
                yield from FORMATS[reader](path, reading)
            except DamagedError as error:
                _leave_out(error, reading)
        return
    events = [path for path in files if tensorboard.is_events(path)]
    states = [path for path in files if path.name == "trainer_state.json"]
    evented = {path.parent for path in events}
    others = [
        path for path in files
        if _suffix(path) in _KNOWN and path.name not in _CONFIGURATION and path not in states
        and not (path.parent in evented and _suffix(path) == ".json")
    ]  # fmt: skip
    found = False
    passed_over: list[HistoryError] = []
    for store in sorted(path for path in folder.rglob("mlruns") if path.is_dir()):
        for run in mlflow.run_folders(store):
            found = True
            yield run
    for session in tensorboard.by_folder(events):
        found = True
        yield session
    for path in trainer_state.newest(states):
        found = True
        yield trainer_state.TrainerStateRun(str(path), path)
    for path in others:
        try:
            format_ = _format_in_folder(path, passed_over)
            for each in FORMATS[format_](path, reading) if format_ is not None else ():
                found = True
                yield each
        except DamagedError as error:
            found = True
            _leave_out(error, reading)
    if not found:
        why = f", nor in {passed_over[0].place}: {passed_over[0].found}" if passed_over else ""
        raise HistoryError(str(folder), f"no history in this folder{why}", f"known are {', '.join(FORMATS)}")
    for other in passed_over:
        reading.note(f"{other.place}: {other.found}, passed over")


def _format_in_folder(path: Path, passed_over: list[HistoryError]) -> str | None:
    """Format of a file among others; None for one that is no history, such as a data set or a configuration.

    What may have been meant as one, and can't be read, is put into `passed_over`.
    """
    try:
        format_ = _format_of(path)
        if format_ == "csv":
            names: Collection[str] = table.header(path)[0]
        elif format_ in ("json", "jsonl"):
            records = jsonl.json_records if format_ == "json" else jsonl.jsonl_records
            quiet = Reading(skip=True)
            names = next((values for _, values in records(path, quiet)), {})
            if not names and quiet.skipped and format_ == "jsonl":
                passed_over.append(HistoryError(str(path), "no JSON object on any line"))
            if format_ == "json" and any("loss" in name for name in names):
                return format_
        else:
            if format_ == "mlflow":
                list(mlflow.recordings_of_sqlite(path, Reading()))
            return format_
    except (DamagedError, NoHistoryError) as error:
        if isinstance(error, DamagedError):
            raise
        return None
    except HistoryError as error:
        if _suffix(path) in _TABLES:
            passed_over.append(error)
        return None
    columns = columns_of(names)
    if columns.step is not None or columns.epoch is not None:
        return format_
    if any("loss" in name.lower() for name in names):
        passed_over.append(HistoryError(str(path), "a loss without a step or an epoch"))
    return None


def _mlflow(path: Path, reading: Reading) -> Iterable[Recording]:
    if not path.is_dir():
        return mlflow.recordings_of_sqlite(path, reading)
    runs = mlflow.run_folders(path)
    if not runs:
        raise HistoryError(str(path), "no runs of MLflow in this folder", "name another")
    return runs


def _tensorboard(path: Path, reading: Reading) -> Iterable[Recording]:
    if not path.is_dir():
        return tensorboard.recordings(path, reading)
    events = [each for each in path.rglob("*") if each.is_file() and tensorboard.is_events(each)]
    if not events:
        raise HistoryError(str(path), "no event files in this folder", "name another")
    return tensorboard.by_folder(events)


def _is_hidden(path: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _suffix(path: Path) -> str:
    return Path(path.stem).suffix.lower() if path.suffix.lower() in _PACKED else path.suffix.lower()


def _format_of(path: Path) -> str:
    """Name of the format, by name and content.

    Raises:
        HistoryError: It is none that is known.
    """
    if tensorboard.is_events(path):
        return "tensorboard"
    start = head(path)
    if mlflow.is_sqlite(start):
        return "mlflow"
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not text:
        raise HistoryError(str(path), "an empty file", "give a file with a history")
    if mllog.MARK in start:
        return "mllog"
    if text[:1] in b"{[" and not text.startswith(b"{'"):
        found = _json_format(path, text)
        if found is not None:
            return found
    style = printed.style_of(path) if _suffix(path) not in (".csv", ".tsv") else None
    if style is not None:
        return style
    try:
        table.header(path)
    except HistoryError:
        if _suffix(path) in (".csv", ".tsv"):
            raise
        found = short(text[:60].decode(errors="replace"))
        raise HistoryError(f"{path}:1", found, f"known formats are {', '.join(FORMATS)}; --reader names one") from None
    return "csv"


def _json_format(path: Path, start: bytes) -> str | None:
    """Format of what begins as JSON: the first line is a value of its own, or the whole file is one."""
    line, newline, rest = start.partition(b"\n")
    if _suffix(path) in (".jsonl", ".ndjson") or (newline and rest.strip()) or not newline:
        if not newline:  # the line may be longer than the beginning
            line = next((data for _, data in lines(path, Reading(skip=True))), line).strip()
        try:
            value = parse_json(line)
        except ValueError:
            value = None
        if curves.is_curve(value):
            return "curves"
        if isinstance(value, dict) and not (megatron.is_megatron(value) or "log_history" in value):
            if decisions.is_decision(value):
                return "decisions"
            if _suffix(path) in (".jsonl", ".ndjson") or rest.strip():
                return "jsonl"
    if _suffix(path) in (".jsonl", ".ndjson"):
        return "jsonl"
    try:
        value = parse_json(document(path))
    except ValueError:
        if _suffix(path) != ".json" and not line.startswith(b'{"'):
            return None  # a log that begins with a bracket
        return "jsonl" if newline else "json"
    if isinstance(value, dict):
        if isinstance(value.get("log_history"), list):
            return "trainer_state"
        if megatron.is_megatron(value):
            return "megatron"
        if curves.is_curve(value):
            return "curves"
        if decisions.is_decision(value):
            return "decisions"
    if isinstance(value, list) and value and all(map(curves.is_curve, value)):
        return "curves"
    return "json"
