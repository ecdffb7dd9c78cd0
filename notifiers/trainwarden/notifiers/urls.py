"""Read where to send messages: values, a file, or an environment variable. No error or log line holds an address."""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from trainwarden.notifiers.apprise_channel import AppriseNotifier, ChannelUrlError

__all__ = ["VARIABLE", "ChannelUrlError", "read_urls"]

log = logging.getLogger(__name__)

VARIABLE = "TRAINWARDEN_NOTIFY_URLS"


def read_urls(
    values: Sequence[str] = (), *, file: Path | None = None, environment: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """All addresses in order, each checked, each once.

    Args:
        values: As given by `--notify`, one address each.
        file: One address a line; empty lines and lines that begin with `#` are skipped.
        environment: Where to look for TRAINWARDEN_NOTIFY_URLS (addresses parted by white space); None: nowhere.

    Raises:
        ChannelUrlError: An address can't be used, or the file can't be read; names the place.
    """
    found = [(f"--notify #{index}", value.strip()) for index, value in enumerate(values, 1)]
    if file is not None:
        found += _lines(file)
    words = (environment or {}).get(VARIABLE, "").split()
    found += [(f"{VARIABLE} #{index}" if len(words) > 1 else VARIABLE, word) for index, word in enumerate(words, 1)]
    urls: dict[str, None] = {}
    for place, url in found:
        AppriseNotifier.check(url, place=place)
        urls[url] = None
    return tuple(urls)


def _lines(file: Path) -> list[tuple[str, str]]:
    try:
        if file.stat().st_mode & (stat.S_IROTH | stat.S_IWOTH):
            log.warning("notification addresses are readable by everyone file=%s remedy='chmod 600'", file)
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ChannelUrlError(str(file), f"is not UTF-8 text (byte {error.start})", "save it as UTF-8") from None
    except OSError as error:
        remedy = "give a readable file with one address a line"
        raise ChannelUrlError(str(file), f"cannot be read: {error.strerror}", remedy) from None
    numbered = ((f"{file}:{number}", line.strip()) for number, line in enumerate(text.splitlines(), 1))
    return [(place, line) for place, line in numbered if line and not line.startswith("#")]
