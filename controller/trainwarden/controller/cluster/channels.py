"""NotificationChannels that stand in the API: read with their Secrets, marked Ready or not, and told to the notifier.

Addresses are secrets: they go to the notifier in an answer on NATS and into no stream, no status and no log.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import kopf
from httpx2 import HTTPError
from lightkube import ApiError, AsyncClient
from lightkube.types import PatchType
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from pydantic import ValidationError

from trainwarden.controller.bus import Bus
from trainwarden.controller.channel_lists import CHANNELS_CHANGED, CHANNELS_SUBJECT, Channel, ChannelList
from trainwarden.controller.cluster.resources import ClusterNotificationChannel, NotificationChannel, Secret
from trainwarden.controller.payloads import encode
from trainwarden.notifiers.apprise_channel import AppriseNotifier, ChannelUrlError
from trainwarden.policies.channel_models import ChannelSpec, ClusterChannelSpec
from trainwarden.policies.channel_models import ClusterNotificationChannel as ClusterChannelModel
from trainwarden.policies.channel_models import NotificationChannel as ChannelModel
from trainwarden.policies.condition import Condition, ObjectStatus
from trainwarden.policies.models import GROUP, VERSION

__all__ = ["ChannelKinds"]

log = logging.getLogger(__name__)

_LOOK_AGAIN = 30.0  # seconds between two looks at the Secrets of all channels


class ChannelKinds:
    """Registers the handlers of both kinds, and answers the notifier.

    Args:
        client: With which Secrets are read.
        bus: Where the notifier asks.
    """

    def __init__(self, client: AsyncClient, bus: Bus) -> None:
        self._client: Any = client
        self._bus = bus
        self._bodies: dict[str, dict[str, Any]] = {}
        self._channels: dict[str, Channel] = {}
        self._lock = asyncio.Lock()
        self._complete = False

    def register(self, registry: kopf.OperatorRegistry) -> None:
        """Add the handlers."""
        for plural in ("notificationchannels", "clusternotificationchannels"):
            kopf.on.event(GROUP, VERSION, plural, id=f"{plural}-changed", registry=registry)(self._changed)

    async def run(self) -> None:
        """Answer the notifier, and look at the Secrets now and then, until cancelled."""
        client = await self._bus.client()

        async def answer(message: Msg) -> None:
            if self._complete and message.reply:
                await self._bus.publish(message.reply, encode(ChannelList(tuple(self._channels.values()))))

        subscription = await client.subscribe(CHANNELS_SUBJECT, cb=answer)
        try:
            while True:
                try:
                    await self._look()
                    self._complete = True
                except (ApiError, HTTPError, OSError) as error:
                    log.info("channels are looked at later reason=%s", type(error).__name__)
                await asyncio.sleep(_LOOK_AGAIN if self._complete else 2.0)
        finally:
            await subscription.unsubscribe()

    async def _look(self) -> None:
        bodies = {}
        kinds: tuple[tuple[Any, dict[str, str]], ...] = (
            (NotificationChannel, {"namespace": "*"}),
            (ClusterNotificationChannel, {}),
        )
        for kind, options in kinds:
            async for body in self._client.list(kind, **options):
                bodies[str(body["metadata"]["uid"])] = dict(body)
        for uid in self._channels.keys() - bodies.keys():
            del self._channels[uid]
        for body in bodies.values():
            await self._take(body)

    async def _changed(self, body: kopf.Body, **more: Any) -> None:
        plain = dict(body)
        uid = str(plain["metadata"]["uid"])
        if more["type"] == "DELETED":
            if self._channels.pop(uid, None) is not None:
                await self._tell()
            return
        try:
            await self._take(plain)
        except (ApiError, HTTPError, OSError) as error:
            log.info("a channel is looked at later reason=%s", type(error).__name__)

    async def _take(self, body: dict[str, Any]) -> None:
        async with self._lock:
            channel, problem = await self._read(body)
            uid = str(body["metadata"]["uid"])
            if channel != self._channels.get(uid):
                if channel is None:
                    self._channels.pop(uid, None)
                else:
                    self._channels[uid] = channel
                await self._tell()
            await self._mark(body, channel, problem)

    async def _tell(self) -> None:
        """Have the notifier ask anew; it does so by itself when it can't be told now."""
        with contextlib.suppress(NatsError, OSError, TimeoutError):
            await self._bus.publish(CHANNELS_CHANGED, b"")

    async def _read(self, body: Mapping[str, Any]) -> tuple[Channel | None, str]:
        model: Any = ChannelModel if body["kind"] == "NotificationChannel" else ClusterChannelModel
        plain = {name: value for name, value in body.items() if name != "status"}
        try:
            made = model.model_validate(plain)
        except ValidationError as error:
            return None, "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        spec, metadata = made.spec, body["metadata"]
        namespace = str(metadata.get("namespace", ""))
        where = getattr(spec.secret_ref, "namespace", namespace)
        name = f"Secret {where}/{spec.secret_ref.name}"
        try:
            secret = await self._client.get(Secret, spec.secret_ref.name, namespace=where)
        except ApiError as error:
            if error.status.code == 404:
                return None, f"spec.secretRef: {name} is not there; make it, with the key {spec.secret_ref.key}"
            if error.status.code == 403:
                return None, f"spec.secretRef: {name} may not be read by trainwarden; give it the right to"
            raise
        data = (secret.get("data") or {}).get(spec.secret_ref.key)
        if data is None:
            keys = ", ".join(sorted(secret.get("data") or {})) or "no key"
            return None, f"spec.secretRef.key: {name} has {keys}, not {spec.secret_ref.key}"
        urls = tuple(
            line.strip() for line in base64.b64decode(data).decode(errors="replace").splitlines() if line.strip()
        )
        if not urls:
            return None, f"spec.secretRef: {name} holds no address; put Apprise URLs there, one a line"
        for number, url in enumerate(urls, 1):
            try:
                AppriseNotifier(url, target=f"#{number}", public_only=False)
            except ChannelUrlError as error:
                return None, f"spec.secretRef: address {number} of {name} can't be used: {error}"
        return (
            Channel(
                name=str(metadata["name"]),
                namespace=namespace,
                urls=urls,
                minimum_severity=spec.minimum_severity,
                selector=spec.selector.model_dump(mode="json", by_alias=True, exclude_defaults=True),
                namespace_selector=_selector_of(spec),
                default=spec.default,
            ),
            "",
        )

    async def _mark(self, body: Mapping[str, Any], channel: Channel | None, problem: str) -> None:
        metadata = body["metadata"]
        generation = int(metadata["generation"])
        known = ((body.get("status") or {}).get("conditions") or [{}])[0]
        status: Literal["True", "False"] = "True" if channel is not None else "False"
        number = len(channel.urls) if channel is not None else 0
        message = f"{number} address{'' if number == 1 else 'es'}" if channel is not None else problem
        if [known.get(name) for name in ("status", "message", "observedGeneration")] == [status, message, generation]:
            return
        since = known.get("lastTransitionTime") if known.get("status") == status else None
        condition = Condition(
            type="Ready",
            status=status,
            observed_generation=generation,
            last_transition_time=datetime.fromisoformat(since) if since else datetime.now(UTC).replace(microsecond=0),
            reason="Accepted" if channel is not None else "Invalid",
            message=message,
        )
        made = ObjectStatus(observed_generation=generation, conditions=(condition,))
        namespaced = "namespace" in metadata
        kind: Any = NotificationChannel if namespaced else ClusterNotificationChannel
        await self._client.patch(
            kind.Status,
            metadata["name"],
            {"status": made.model_dump(mode="json", by_alias=True)},
            patch_type=PatchType.MERGE,
            **({"namespace": metadata["namespace"]} if namespaced else {}),
        )


def _selector_of(spec: ChannelSpec) -> dict[str, Any]:
    if not isinstance(spec, ClusterChannelSpec):
        return {}
    return spec.namespace_selector.model_dump(mode="json", by_alias=True, exclude_defaults=True)
