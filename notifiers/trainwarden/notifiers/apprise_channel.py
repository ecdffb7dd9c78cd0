"""Apprise behind our Notifier: one long-lived object for each target, with what could do harm switched off.

Off are redirects, templates, plugins from disk, and storage. Reasons are made from status codes, never from
Apprise's texts or URLs, since those may hold custom headers in clear.
"""

from __future__ import annotations

import http.client
import ipaddress
import logging
import re
import socket
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from trainwarden.notifiers.compose import Message
from trainwarden.notifiers.protocol import Attempt, Ending
from trainwarden.policies.decision import Severity

if TYPE_CHECKING:
    from apprise import AppriseAsset

__all__ = ["AppriseNotifier", "ChannelUrlError"]

_MAIL = frozenset({"mailto", "mailtos", "mailgun", "sendgrid", "ses", "postmark", "smtp2go", "sparkpost", "resend"})
_MARKDOWN = frozenset({"slack"})  # Apprise translates: we declare what it gets
_AS_IS = frozenset({"discord", "mmost", "mmosts", "gchat", "workflow", "workflows", "rocket", "rockets", "zulip"})
_LOCAL = frozenset(
    {"dbus", "glib", "gnome", "kde", "qt", "macosx", "windows", "syslog", "blink1", "file", "exec", "python"}
)
_NATIVE = frozenset({"http", "https"})  # a service's own address, which Apprise knows again
_STATUS = re.compile(r"error=(\d{3})\b")
_RETRIED = frozenset({408, 425, 429})


class ChannelUrlError(ValueError):
    """An address can't be used: whoever gave it must change it. Names the place, never the address."""

    def __init__(self, place: str, found: str, remedy: str) -> None:
        self.place, self.found, self.remedy = place, found, remedy
        super().__init__(f"{place}: {found}; {remedy}")


@cache
def _asset() -> AppriseAsset:
    """What all targets share. Imports Apprise, which takes about half a second the first time."""
    import apprise

    logger = logging.getLogger("apprise")  # results carry what it logs at WARNING; it must not reach our own log
    logger.addHandler(logging.NullHandler())
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    with warnings.catch_warnings():  # some plugins import modules that Python deprecates
        warnings.simplefilter("ignore", DeprecationWarning)
        apprise.NotificationManager().schemas()
    asset = apprise.AppriseAsset(allow_templates=False, secure_logging=True, storage_mode="memory", service_timeout=0)
    asset.http_redirects = False
    asset.async_mode = False
    asset.app_id = "trainwarden"
    asset.app_desc = "trainwarden"
    asset.app_url = ""
    asset.image_url_mask = ""
    asset.image_url_logo = ""
    return asset


class AppriseNotifier:
    """One Apprise URL.

    Args:
        url: The address; a secret.
        target: What to call it in results and logs.
        public_only: Refuse hosts that resolve to an address that is not public. Local receivers need it off.

    Raises:
        ChannelUrlError: The URL can't be used.
    """

    def __init__(self, url: str, *, target: str, public_only: bool = False) -> None:
        import apprise

        self._target, self._public_only = target, public_only
        self._plugin = _plugin(url, target)
        self._scheme = _scheme(url, self._plugin)
        self._service = apprise.Apprise(asset=_asset())
        self._service.add(self._plugin)

    @staticmethod
    def check(url: str, *, place: str) -> None:
        """Raise ChannelUrlError when the address can't be used; sends nothing."""
        _plugin(url, place)

    @property
    def target(self) -> str:
        head, space, number = self._target.partition(" ")
        return f"{self._scheme}{space}{number}" if head in _NATIVE else self._target

    @property
    def scheme(self) -> str:
        """Name of the service, such as `slack`."""
        return self._scheme

    def deliver(self, message: Message) -> Attempt:
        """Try once. Never raises. A service that never ends its answer holds it for good.

        Apprise is given no time limit: it would keep that in threads that Python waits for before it exits.
        """
        if self._public_only and (problem := _not_public(str(getattr(self._plugin, "host", "") or ""))):
            return problem
        try:
            self._thread(message)
            body, form = self._body(message)
            result = self._service.notify(
                body=body,
                title=message.title,
                notify_type=_TYPES[message.severity],
                body_format=form,
                attach=self._picture(message),
                interpret_escapes=False,
            )
            return _attempt(result)
        except Exception as error:
            return Attempt(Ending.RETRY, f"{self._scheme} plugin raised {type(error).__name__}")

    def _body(self, message: Message) -> tuple[str, str | None]:
        """The text for the service, and its declared format; None: handed on as it is."""
        if self._scheme in _MAIL:
            return message.html, "html"
        limit = self._plugin.body_maxlen
        room = (limit if isinstance(limit, int) else 1000) - len(message.title) - 2
        if self._scheme in _MARKDOWN or self._scheme in _AS_IS:
            body = message.markdown if len(message.markdown) <= room else message.short
            return body, "markdown" if self._scheme in _MARKDOWN else None
        return (message.plain if len(message.plain) <= room else message.short_plain), "text"

    def _picture(self, message: Message) -> Any:
        mode = str(getattr(self._plugin, "mode", "") or "").lower()
        hook = "hook" in mode or mode.startswith("gov")
        if message.png is None or not self._plugin.attachment_support or hook:
            return None
        from apprise.attachment.memory import AttachMemory

        return AttachMemory(content=message.png, name=message.picture_name, mimetype="image/png")

    def _thread(self, message: Message) -> None:
        """Let mail programs keep an incident together: all its mails refer to one id."""
        if self._scheme in {"mailto", "mailtos"}:
            name = re.sub(r"[^A-Za-z0-9.-]", "-", message.incident)[:120]
            self._plugin.headers["References"] = f"<{name}@trainwarden.dev>"
            self._plugin.headers["In-Reply-To"] = f"<{name}@trainwarden.dev>"


_TYPES = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.CRITICAL: "failure"}


def _plugin(url: str, place: str) -> Any:
    """Apprise's object for the URL. Raises ChannelUrlError."""
    import apprise

    asset = _asset()
    scheme, parted, _ = url.strip().partition("://")
    scheme = scheme.lower()
    example = "write a URL such as slack://TOKEN_A/TOKEN_B/TOKEN_C, a Slack webhook's https URL, or mailto://"
    if not parted or not re.fullmatch(r"[a-z][a-z0-9+.-]{0,30}", scheme):
        raise ChannelUrlError(place, "has no scheme that could be read", example)
    if scheme in _LOCAL:
        raise ChannelUrlError(place, f"{scheme}:// stays on this machine", "use a service that reaches a person")
    try:
        plugin = apprise.Apprise.instantiate(url.strip(), asset=asset, suppress_exceptions=False)
    except Exception:
        plugin = None
    if plugin is None and scheme in _NATIVE:
        found = f"this {scheme}:// address is of no service that is known"
        raise ChannelUrlError(place, found, "for a hook of your own write json:// or jsons:// in its place")
    if plugin is None:
        known = apprise.NotificationManager().schemas()
        if scheme not in known:
            raise ChannelUrlError(place, f"{scheme}:// is no service that is known", example)
        raise ChannelUrlError(
            place, f"this {scheme}:// URL is not complete, or unknown", "see docs/notifications.md for its form"
        )
    return plugin


def _scheme(url: str, plugin: Any) -> str:
    scheme = url.strip().partition("://")[0].lower()
    if scheme not in _NATIVE:
        return scheme
    own = plugin.secure_protocol or plugin.protocol
    return str(own if isinstance(own, str) else next(iter(own)))


def _attempt(result: Any) -> Attempt:
    """What Apprise's result means. Its texts are only searched for a status code."""
    if result:
        return Attempt(Ending.DELIVERED)
    texts = [entry.message for one in result.results for attempt in one.attempts for entry in attempt.logs]
    codes = [int(code) for text in texts for code in _STATUS.findall(text)]
    if codes:
        code = codes[-1]
        phrase = http.client.responses.get(code, "")
        reason = f"HTTP {code} {phrase}".rstrip()
        if code == http.HTTPStatus.TOO_MANY_REQUESTS:
            return Attempt(Ending.LIMITED, reason)
        if 300 <= code < 400:
            return Attempt(Ending.PERMANENT, f"{reason}: redirects are not followed")
        return Attempt(Ending.PERMANENT if 400 <= code < 500 and code not in _RETRIED else Ending.RETRY, reason)
    if any("onnection error" in text for text in texts):
        return Attempt(Ending.RETRY, "connection refused, lost or timed out")
    return Attempt(Ending.RETRY, "the service did not take the message")


def _not_public(host: str) -> Attempt | None:
    """Why the host may not be spoken to; None when it may, or the service has a host of its own."""
    if not host:
        return None
    try:
        found = {str(entry[4][0]).partition("%")[0] for entry in socket.getaddrinfo(host, None)}
    except (OSError, UnicodeError):
        return Attempt(Ending.RETRY, "the name of the host could not be resolved")
    if all(ipaddress.ip_address(address).is_global for address in found):
        return None
    return Attempt(Ending.PERMANENT, "the host's address is not public")
