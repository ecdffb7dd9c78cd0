"""Which job a process trains for, as its environment tells."""

import pytest

from trainwarden.reporters.identity import Identity, UnknownJobError, identify, whole_from

URL = "https://trainer.kubeflow-system.svc:10443/apis/trainer.kubeflow.org/v1alpha1/namespaces/team-u/trainjobs/from-url/status"
HOSTS = "127.0.0.1 localhost\n::1 localhost\n10.1.2.3\tbert-node-0-0.bert.team-h.svc.cluster.local\tbert-node-0-0\n"


@pytest.mark.parametrize(
    ("environ", "known", "found"),
    [
        ({}, {"namespace": "team-a", "job": "told"}, ("team-a", "told")),
        ({"TRAINWARDEN_JOB": "own"}, {"job": "told"}, ("default", "told")),
        (
            {"TRAINWARDEN_NAMESPACE": "team-e", "TRAINWARDEN_JOB": "own", "KUBEFLOW_TRAINER_SERVER_URL": URL},
            {},
            ("team-e", "own"),
        ),
        ({"TRAINWARDEN_JOB": "own"}, {"mounted_namespace": "team-m\n"}, ("team-m", "own")),
        ({"KUBEFLOW_TRAINER_SERVER_URL": URL, "PET_MASTER_ADDR": "pet-node-0-0.pet"}, {}, ("team-u", "from-url")),
        ({"PET_MASTER_ADDR": "pet-node-0-0.pet"}, {"mounted_namespace": "team-m"}, ("team-m", "pet")),
        ({"PET_MASTER_ADDR": "pet-node-0-0.pet.team-p.svc.cluster.local."}, {}, ("team-p", "pet")),
        ({}, {"pod": "bert-node-0-0", "hosts": HOSTS}, ("team-h", "bert")),
        ({"TRAINWARDEN_JOB": "own"}, {"pod": "bert-node-0-0", "hosts": HOSTS}, ("team-h", "own")),
    ],
    ids=[
        "arguments",
        "argument before variable",
        "own variables",
        "mount",
        "status URL",
        "master",
        "long master",
        "hosts",
        "mixed",
    ],
)
def test_the_job_comes_from_the_first_that_tells_it(
    environ: dict[str, str], known: dict[str, str], found: tuple[str, str]
) -> None:
    pod = known.pop("pod", "vm")

    identity = identify(environ, pod=pod, **known)  # type: ignore[arg-type]  # the table holds texts only

    assert (identity.namespace, identity.job) == found


@pytest.mark.parametrize("address", ["", "10.0.0.7", "localhost", "node-1.example.com", "::1", "..", "a_b.c"])
def test_a_master_that_names_no_job_tells_nothing(address: str) -> None:
    with pytest.raises(UnknownJobError, match="TRAINWARDEN_JOB"):
        identify({"PET_MASTER_ADDR": address}, pod="vm")


@pytest.mark.parametrize("job", ["a.b", "a b", "*", "ä"])
def test_a_name_that_can_not_be_in_a_subject_is_refused(job: str) -> None:
    with pytest.raises(UnknownJobError, match="subject"):
        identify({}, pod="vm", job=job)


@pytest.mark.parametrize(
    ("environ", "rank", "world"),
    [({}, 0, 1), ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8), ({"RANK": "x", "WORLD_SIZE": "-1"}, 0, 1)],
    ids=["absent", "torchrun", "odd"],
)
def test_rank_and_world_come_from_the_environment(environ: dict[str, str], rank: int, world: int) -> None:
    assert identify(environ, pod="vm", job="j") == Identity("default", "j", "vm", rank, world)


def test_rank_and_world_come_from_arguments_first() -> None:
    identity = identify({"RANK": "3", "WORLD_SIZE": "8"}, pod="vm", job="j", rank=0, world=2)

    assert (identity.rank, identity.world) == (0, 2)


@pytest.mark.parametrize(("text", "number"), [(None, 5), ("", 5), (" 7 ", 7), ("-1", 5), ("1.5", 5), ("²", 5)])
def test_an_odd_number_counts_as_absent(text: str | None, number: int) -> None:
    assert whole_from(text, 5) == number
