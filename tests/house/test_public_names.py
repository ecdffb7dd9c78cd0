"""What each part offers is known, and changes only on purpose."""

import importlib

import pytest

OFFERED = {
    "trainwarden.reporters": ["Recorder", "Reporter", "resume_from"],
    "trainwarden.reporters.loop": ["TrainingLoop"],
    "trainwarden.reporters.wire": [
        "MAX_BYTES", "Checkpoint", "Command", "Phase", "Reply", "ReplyState", "Report", "TooLargeError", "WireError",
        "command_subject", "decode_command", "decode_reply", "encode", "report_subject", "subject_token",
    ],
    "trainwarden.policies.judge": ["RECALLED", "Judgement", "apply_result", "judge", "withdraw"],
    "trainwarden.policies.loading": ["MOST_BYTES", "Loaded", "Place", "load_policies", "policy_from_body"],
    "trainwarden.policies.compiling": ["CompiledPolicy", "CompiledRule", "compile_loaded", "compile_policy"],
    "trainwarden.policies.expressions.engines": ["engine"],
    "trainwarden.notifiers.delivery": ["DEFAULT", "DeliveryResult", "Dispatcher", "Retries"],
    "trainwarden.notifiers.urls": ["VARIABLE", "ChannelUrlError", "read_urls"],
    "trainwarden.controller.engine": ["Engine"],
    "trainwarden.controller.exit_codes": ["ExitCode"],
}  # fmt: skip


@pytest.mark.parametrize("module", OFFERED)
def test_a_module_offers_what_is_known(module: str) -> None:
    assert sorted(importlib.import_module(module).__all__) == sorted(OFFERED[module])
