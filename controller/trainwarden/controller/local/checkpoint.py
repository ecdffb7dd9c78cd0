"""Whether a checkpoint on this machine is what the training said of it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from trainwarden.policies.decision import Proof
from trainwarden.reporters.proof import ProofError, measure

__all__ = ["problem_of_checkpoint"]


async def problem_of_checkpoint(proof: Proof, folder: Path) -> str:
    """What is wrong with a checkpoint; empty when its files are there and are what was proven.

    Args:
        proof: As the training gave it; what it leaves out is not compared.
        folder: That a relative path begins in: the training's.
    """
    path = folder / proof.path
    try:
        found = await asyncio.to_thread(measure, path)
    except (ProofError, OSError, ValueError) as error:
        return f"the checkpoint {path} can't be read: {error}"
    if proof.bytes is not None and proof.bytes != found.bytes:
        return (
            f"the checkpoint {path} is not what the training proved: it has {found.bytes:,} bytes, not {proof.bytes:,}"
        )
    if proof.digest is not None and found.digest != proof.digest:
        return f"the checkpoint {path} is not what the training proved: its files have changed"
    return ""
