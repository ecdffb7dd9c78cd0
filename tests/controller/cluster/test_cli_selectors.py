"""Label selectors are read as kubectl's -l, and come out as the API has them."""

import pytest
from lightkube.core.selector import build_selector

from trainwarden.controller.cluster.console.errors import ConsoleError
from trainwarden.controller.cluster.console.selectors import parse_selector


@pytest.mark.parametrize(
    ("text", "sent"),
    [
        ("", ""),
        ("team=nlp", "team=nlp"),
        ("team==nlp, tier!=prod", "team=nlp,tier!=prod"),
        ("stage in (dev, test),!frozen", "stage in (dev,test),!frozen"),
        ("stage notin (dev),kueue.x-k8s.io/queue-name", "stage notin (dev),kueue.x-k8s.io/queue-name"),
        ("team=", "team="),
    ],
)
def test_a_selector_is_read(text: str, sent: str) -> None:
    assert build_selector(list(parse_selector(text))) == sent


@pytest.mark.parametrize("text", ["team=nlp,", "a in dev", "a b", "-x", "a in (x,y", "=x", "a>3"])
def test_what_is_no_selector_is_refused_with_its_part(text: str) -> None:
    with pytest.raises(ConsoleError, match="is no condition on a label; write team=nlp"):
        parse_selector(text)
