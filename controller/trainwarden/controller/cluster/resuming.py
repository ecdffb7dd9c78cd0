"""Resumes a TrainJob, and only one that we have suspended; where a queue decides, it is put back into the queue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightkube import AsyncClient
from lightkube.types import PatchType

from trainwarden.controller.cluster.resources import TrainJob, Workload

__all__ = ["resume"]


async def resume(client: AsyncClient, trainjob: Mapping[str, Any], workload: Mapping[str, Any] | None) -> str:
    """Ask for the resume; gives a sentence that says what will happen.

    Args:
        client: With which it writes.
        trainjob: The TrainJob.
        workload: Its Workload, where Kueue manages it.

    Raises:
        lightkube.ApiError: The API server refused.
    """
    writer: Any = client
    metadata = trainjob["metadata"]
    if workload is not None and not (workload.get("spec") or {}).get("active", True):
        body = {"metadata": {"uid": workload["metadata"]["uid"]}, "spec": {"active": True}}
        name = workload["metadata"]["name"]
        await writer.patch(Workload, name, body, namespace=metadata["namespace"], patch_type=PatchType.MERGE)
        return "it is back in its queue, and runs when it is admitted"
    body = {"metadata": {"uid": metadata["uid"]}, "spec": {"suspend": False}}
    await writer.patch(TrainJob, metadata["name"], body, namespace=metadata["namespace"], patch_type=PatchType.MERGE)
    return "its pods are made anew"
