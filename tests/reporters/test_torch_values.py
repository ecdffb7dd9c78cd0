"""Values of real torch tensors."""

import pytest

torch = pytest.importorskip("torch", reason="the reporter needs no torch; this environment has none")

from trainwarden.reporters.values import RefusedError, metric, whole  # noqa: E402 - after the skip


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("tensor", "number"),
    [
        (torch.tensor(2.5), 2.5),
        (torch.tensor([2.5]), 2.5),
        (torch.tensor(2.5, dtype=torch.bfloat16), 2.5),
        (torch.tensor(3), 3.0),
        (torch.tensor(2.5, requires_grad=True), 2.5),
    ],
    ids=["scalar", "one element", "bfloat16", "integer", "with gradient"],
)
def test_a_tensor_with_one_element_on_the_cpu_is_read(tensor: object, number: float) -> None:
    assert metric("loss", tensor) == number


def test_a_tensor_on_another_device_is_refused() -> None:
    with pytest.raises(RefusedError, match="meta"):
        metric("loss", torch.tensor(2.5, device="meta"))
    with pytest.raises(RefusedError, match="meta"):
        whole("step", torch.tensor(2, device="meta"))


def test_a_tensor_with_several_elements_is_refused() -> None:
    with pytest.raises(RefusedError, match="'loss' refused"):
        metric("loss", torch.ones(2))


def test_a_step_counted_by_a_tensor_is_a_step() -> None:
    assert whole("step", torch.tensor(7)) == 7
