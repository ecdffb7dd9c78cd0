"""The caller's kubeconfig is found and read as kubectl does."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from trainwarden.controller.cluster.console.errors import ConsoleError
from trainwarden.controller.cluster.console.kubeconfig import config_of, has_config


def written(path: Path, name: str, *, current: str = "", **user: Any) -> Path:
    content: dict[str, Any] = {
        "current-context": current,
        "clusters": [{"name": name, "cluster": {"server": f"https://{name}:6443", "certificate-authority": "ca.crt"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": f"of-{name}"}}],
        "users": [{"name": name, "user": user or {"token": f"token-{name}"}}],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(content))
    return path


def test_the_files_of_kubeconfig_are_one_and_the_first_current_context_counts(tmp_path: Path) -> None:
    first, second = (
        written(tmp_path / "a" / "config", "red"),
        written(tmp_path / "b" / "config", "blue", current="blue"),
    )
    environment = {"KUBECONFIG": os.pathsep.join([str(first), str(tmp_path / "absent"), str(second)])}

    chosen, asked = config_of(None, None, environment), config_of(None, "red", environment)

    assert (chosen.context_name, chosen.namespace) == ("blue", "of-blue")
    assert (asked.cluster.server, asked.namespace) == ("https://red:6443", "of-red")


def test_paths_are_relative_to_the_file_that_they_stand_in(tmp_path: Path) -> None:
    first, second = (
        written(tmp_path / "a" / "config", "red"),
        written(tmp_path / "b" / "config", "blue", current="blue"),
    )
    environment = {"KUBECONFIG": os.pathsep.join([str(first), str(second)])}

    assert config_of(None, None, environment).cluster.certificate_auth == str(tmp_path / "b" / "ca.crt")


def test_a_name_that_is_in_two_files_is_taken_from_the_first(tmp_path: Path) -> None:
    first = written(tmp_path / "a", "red", current="red")
    second = written(tmp_path / "b", "red", current="red", token="other")

    config = config_of(None, None, {"KUBECONFIG": f"{first}{os.pathsep}{second}"})

    assert config.user is not None
    assert config.user.token == "token-red"


def test_without_kubeconfig_the_one_at_home_is_read(tmp_path: Path) -> None:
    written(tmp_path / ".kube" / "config", "home", current="home")
    environment = {"HOME": str(tmp_path)}

    assert has_config(environment)
    assert config_of(None, None, environment).context_name == "home"


def test_a_file_that_was_asked_for_counts_alone(tmp_path: Path) -> None:
    given = written(tmp_path / "given", "given", current="given")
    other = written(tmp_path / "other", "other", current="other")

    assert config_of(given, None, {"KUBECONFIG": str(other)}).context_name == "given"


def test_a_context_without_a_user_is_nobody(tmp_path: Path) -> None:
    path = written(tmp_path / "config", "proxy", current="proxy")
    content = yaml.safe_load(path.read_text())
    del content["contexts"][0]["context"]["user"], content["users"]
    path.write_text(yaml.safe_dump(content))

    config = config_of(path, None, {})

    assert config.user is not None
    assert config.user.token is None


def test_a_login_helper_of_the_newest_version_is_understood(tmp_path: Path) -> None:
    helper = {"apiVersion": "client.authentication.k8s.io/v1", "command": "login"}
    path = written(tmp_path / "config", "cloud", current="cloud", exec=helper)

    config = config_of(path, None, {})

    assert config.user is not None
    assert config.user.exec is not None
    assert config.user.exec.command == "login"


def problem_of(path: Path | None, context: str | None = None, **environment: str) -> str:
    with pytest.raises(ConsoleError) as caught:
        config_of(path, context, environment)
    return str(caught.value)


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere"
    good = written(tmp_path / "good", "red")

    assert problem_of(None, HOME=str(tmp_path)) == (
        f"no kubeconfig at {tmp_path}/.kube/config; set KUBECONFIG, or give --kubeconfig FILE"
    )
    assert problem_of(nowhere) == f"no kubeconfig at {nowhere}; set KUBECONFIG, or give --kubeconfig FILE"
    assert problem_of(good) == f"{good} has no current context; give --context, one of: red"
    assert problem_of(good, "blue") == f"{good} has no context 'blue'; known are: red"
    assert not has_config({"HOME": str(tmp_path)})


def test_what_is_broken_is_said_with_its_file(tmp_path: Path) -> None:
    text, words = tmp_path / "text", tmp_path / "words"
    text.write_text("a: [")
    words.write_text("hello")
    dangling = written(tmp_path / "dangling", "red", current="red")
    content = yaml.safe_load(dangling.read_text())
    content["clusters"] = []
    dangling.write_text(yaml.safe_dump(content))

    assert problem_of(text).startswith(f"{text} can't be read: ")
    assert problem_of(words) == f"{words} is not a kubeconfig; it holds no fields"
    assert problem_of(dangling) == f"{dangling}: context 'red' names 'red', which is not there"


@pytest.mark.parametrize("kind", ["cluster", "context", "user"])
@pytest.mark.parametrize("wrong", ["words", ["words"], [{"name": "red", "WORD": "words"}], [{"WORD": {}}], [{}]])
def test_what_is_no_list_of_objects_is_said(tmp_path: Path, kind: str, wrong: Any) -> None:
    path = written(tmp_path / "config", "red", current="red")
    content = yaml.safe_load(path.read_text())
    content[f"{kind}s"] = yaml.safe_load(yaml.safe_dump(wrong).replace("WORD", kind))
    path.write_text(yaml.safe_dump(content))

    assert problem_of(path) == f"{path} is not a kubeconfig; {kind}s is a list of objects with name and {kind}"


@pytest.mark.parametrize("user", [{"exec": "words"}, {"exec": {"command": 3}}, {"token": ["x"]}])
def test_a_login_that_can_not_be_one_is_said(tmp_path: Path, user: dict[str, Any]) -> None:
    assert "can't be used: " in problem_of(written(tmp_path / "config", "red", current="red", **user))
