"""A Hub that fails in the middle, and a publisher that is killed: a reader sees the old state or the new one, whole,
and the same command again ends right."""

from __future__ import annotations

import functools
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hub_server import Hub, Refused, Repository, serving
from publish_helpers import NAME, build, command, environment, hub_for_this_process

from curate.errors import HubError, OptionError
from curate.manifest import manifest_tag
from curate.publish import Prepared, PublishConfig, prepare, publish
from curate.publishing.hub import Target, publish_files


@pytest.fixture(scope="module")
def datasets(tmp_path_factory: pytest.TempPathFactory, model_folder: Path) -> tuple[Path, Path]:
    """An old state, and a new one with other parts."""
    folder = tmp_path_factory.mktemp("failures")
    old = build(model_folder, folder / "old", skip_scoring=True, shard_rows=1)
    new = build(model_folder, folder / "new", skip_scoring=True, shard_rows=3)
    return old, new


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    with hub_for_this_process(tmp_path) as hub:
        yield hub


@functools.cache
def prepared(path: Path) -> Prepared:
    """Checked once: nothing changes the two folders."""
    return prepare(PublishConfig(path, NAME))


def put(path: Path) -> None:
    publish_files(Target(NAME), prepared(path).files, prepared(path).tag, "a state")


def repository(hub: Hub) -> Repository:
    return hub.repositories["dataset", NAME]


def is_whole(hub: Hub, path: Path) -> bool:
    """Whether a reader of main sees exactly this dataset."""
    seen = {n: c for n, c in repository(hub).files().items() if n.startswith(("sam", "reg", "rej", "manifest"))}
    files = [
        p for p in path.rglob("*") if p.is_file() and p.relative_to(path).parts[0] in ("samples", "regions", "rejected")
    ]
    wanted = {p.relative_to(path).as_posix(): p.read_bytes() for p in [*files, path / "manifest.json"]}
    return seen == wanted


REQUESTS = {
    "who": "GET /api/whoami",
    "look": "GET /api/datasets/user/kernels$",
    "refs": "GET .*/refs",
    "tree": "GET .*/tree/",
    "preupload": "POST .*/preupload/",
    "batch": "POST .*/objects/batch",
    "upload": "PUT /lfs/",
    "verify": "POST /lfs/.*/verify",
    "card": "POST /api/validate-yaml",
    "commit": "POST .*/commit/",
    "tag": "POST .*/tag/",
}


@pytest.mark.parametrize("how", ["drop after", 429])
@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS.keys())
def test_it_ends_right_after_a_failure(datasets: tuple[Path, Path], hub: Hub, request_: str, how: str | int) -> None:
    old, new = datasets
    put(old)
    commits = len(repository(hub).trees)
    done_at_once = how == "drop after" and request_ in (REQUESTS["commit"], REQUESTS["tag"])  # and found to be
    hub.fail(request_, how, times=1 if done_at_once else 2)
    put(new)
    assert sum(failure.times for failure in hub.failures) == 0, "the failures were met"
    assert is_whole(hub, new)
    assert len(repository(hub).trees) == commits + 1, "the commit is made once, also where its answer is lost"
    assert repository(hub).tags[manifest_tag(new)] == repository(hub).branches["main"]


@pytest.mark.parametrize("how", ["drop", 403])
@pytest.mark.parametrize("request_", ["preupload", "batch", "upload", "card", "commit"])
def test_what_fails_for_good_leaves_the_old_state_whole(
    datasets: tuple[Path, Path], hub: Hub, request_: str, how: str | int
) -> None:
    old, new = datasets
    put(old)
    before = dict(repository(hub).branches)
    hub.fail(REQUESTS[request_], how, times=10_000)
    with pytest.raises(HubError) as caught:
        put(new)
    assert "\n" not in str(caught.value)
    assert hub.writer not in str(caught.value)
    assert repository(hub).branches == before
    assert is_whole(hub, old)
    hub.failures.clear()
    put(new)
    assert is_whole(hub, new)


def test_a_failure_in_the_middle_of_many_uploads_sends_only_the_rest_again(
    datasets: tuple[Path, Path], hub: Hub
) -> None:
    old, _ = datasets
    hub.fail("PUT /lfs/", 403, times=10_000, skip=4)
    with pytest.raises(HubError):
        put(old)
    assert repository(hub).files().keys() == {".gitattributes"}
    hub.failures.clear()
    hub.requests.clear()
    put(old)
    assert is_whole(hub, old)
    parts = len(list(old.glob("[sr]*/part-*"))) - len(list(old.glob("refused/*")))
    assert sum(request.startswith("PUT") for request in hub.requests) < parts


@pytest.mark.parametrize("moment", ["PUT /lfs/", "after the commit"])
def test_killed_in_the_middle_the_old_state_or_the_new_one_is_whole(
    datasets: tuple[Path, Path], tmp_path: Path, moment: str
) -> None:
    old, new = datasets
    with serving() as hub:
        env = environment(hub, tmp_path)
        subprocess.run(command(old), env=env, check=True, timeout=120, stdout=subprocess.DEVNULL)
        child: list[subprocess.Popen[bytes]] = []

        def kill() -> None:
            child[0].kill()
            child[0].wait()

        hub.fail("GET .*/tree/.*", lambda: time.sleep(0.2))
        if moment == "after the commit":
            hub.fail("POST .*/commit/", "drop after")
            hub.fail("GET /api/whoami", kill, skip=1)  # with which it begins again
        else:
            hub.fail(moment, kill, skip=1 if moment.startswith("PUT") else 0)
        child.append(subprocess.Popen(command(new), env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        assert child[0].wait(timeout=120) == -9
        time.sleep(0.2)
        landed = moment in ("after the commit", "POST .*/tag/", "POST .*/commit/")
        assert is_whole(hub, new if landed else old)
        assert is_whole(hub, old) != is_whole(hub, new)
        hub.failures.clear()
        subprocess.run(command(new), env=env, check=True, timeout=120, stdout=subprocess.DEVNULL)
        assert is_whole(hub, new)
        there = repository(hub)
        assert there.tags[manifest_tag(new)] == there.branches["main"]
        assert len(there.trees) == 3


def test_a_slow_hub_is_waited_for(datasets: tuple[Path, Path], hub: Hub) -> None:
    _, new = datasets
    hub.bytes_per_second = 100_000.0
    put(new)
    assert is_whole(hub, new)


def test_files_that_change_while_they_are_sent_are_not_published(
    datasets: tuple[Path, Path], hub: Hub, tmp_path: Path
) -> None:
    old, new = datasets
    put(old)
    copy = Path(shutil.copytree(new, tmp_path / "copy"))
    (part, *_) = sorted(copy.glob("samples/*.parquet"))

    def change() -> None:
        content = part.read_bytes()
        part.write_bytes(content[:-9] + b"x" + content[-8:])

    hub.fail("POST .*/objects/batch", change)
    with pytest.raises(HubError):
        put(copy)
    assert is_whole(hub, old)


def other_user(hub: Hub) -> dict[str, str]:
    return {"HF_TOKEN": hub.other}


BAD: dict[str, tuple[Callable[[Hub], dict[str, str] | None], str]] = {
    "no token": (lambda hub: {"HF_TOKEN": ""}, "no token; log in with `hf auth login`"),
    "unknown token": (lambda hub: {"HF_TOKEN": "hf_UnknownTokenOfNobody1"}, "does not know the token"),
    "read-only token": (lambda hub: {"HF_TOKEN": hub.reader}, "the token is read-only"),
    "namespace of others": (other_user, "the token may not write there (You don't have the rights"),
    "a model": (lambda hub: hub.create("model", NAME) and None, "this is a model repository"),
    "a space": (lambda hub: hub.create("space", NAME) and None, "this is a space repository"),
    "private of others": (
        lambda hub: hub.create("dataset", NAME, private=True) and other_user(hub),
        "may not write there",
    ),
    "offline": (lambda hub: {"HF_HUB_OFFLINE": "1"}, "switched off by HF_HUB_OFFLINE"),
    "nobody listens": (lambda hub: {"HF_ENDPOINT": "http://127.0.0.1:9"}, "cannot be reached"),
    "no such name": (lambda hub: {"HF_ENDPOINT": "http://nowhere.invalid"}, "cannot be reached"),
    "no address": (lambda hub: {"HF_ENDPOINT": "huggingface.co"}, "HF_ENDPOINT is no address of a Hub"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_is_one_line_and_exit_code_two(datasets: tuple[Path, Path], tmp_path: Path, case: str) -> None:
    _, new = datasets
    arrange, words = BAD[case]
    with serving() as hub:
        env = environment(hub, tmp_path, **(arrange(hub) or {}))
        repositories = {key: dict(value.branches) for key, value in hub.repositories.items()}
        done = subprocess.run(command(new), env=env, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 2, done.stderr
        assert done.stdout == ""
        line = done.stderr.strip().splitlines()[-1]
        assert line.startswith(f"error: --repo {NAME}: ")
        assert words in line
        assert sum(x.startswith("error") for x in done.stderr.splitlines()) == 1
        assert "Traceback" not in done.stderr
        for token in (hub.writer, hub.reader, hub.other, "hf_UnknownTokenOfNobody1"):
            assert token not in done.stderr
        assert {key: dict(value.branches) for key, value in hub.repositories.items()} == repositories


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (401, "does not know the token"),
        (404, "no such repository or namespace"),
        (418, "refuses it, HTTP 418 (planned)"),
    ],
)
def test_answers_of_other_kinds(datasets: tuple[Path, Path], hub: Hub, status: int, words: str) -> None:
    hub.fail("POST .*/commit/", status)
    with pytest.raises(HubError) as caught:
        put(datasets[1])
    assert words in str(caught.value)


def test_a_server_that_repeats_the_token_does_not_get_it_printed(datasets: tuple[Path, Path], hub: Hub) -> None:
    def repeat() -> None:
        raise Refused(403, "", f"Bearer {hub.writer} may not")

    hub.fail("POST .*/commit/", repeat)
    with pytest.raises(HubError, match=r"Bearer <token> may not"):
        put(datasets[1])


@pytest.mark.parametrize(
    "name", ["kernels", "a/b/c", "datasets/user/kernels", "https://huggingface.co/a/b", "a/..", "a/b--c", ""]
)
def test_names_that_none_can_have(datasets: tuple[Path, Path], name: str) -> None:
    with pytest.raises(OptionError, match="USER/NAME") as caught:
        publish(PublishConfig(datasets[1], name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"repo": "user/kernels.git"}, "cannot end by '.git'"),
        *(({"revision": name}, "no name that a branch can have") for name in ("", "a..b", "a b", "-x", "a\x1b[2J")),
        ({"revision": "0" * 40}, "a commit cannot be changed"),
        ({"language": ("en", 'x"\n- y')}, "give an ISO 639 code"),
    ],
)
def test_options_that_the_hub_would_not_take(
    datasets: tuple[Path, Path], hub: Hub, options: dict[str, object], words: str
) -> None:
    with pytest.raises(OptionError, match=words) as caught:
        publish(PublishConfig(**{"path": datasets[1], "repo": NAME, **options}))
    assert "\n" not in str(caught.value)
    assert hub.requests == []


def test_a_full_disk_is_one_line(tmp_path: Path, model_folder: Path) -> None:
    if shutil.which("unshare") is None:
        pytest.skip("needs the command unshare")
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        'mount -t tmpfs -o size=16k tmpfs "$0" && "$@"',
        str(disk),
    ]
    if subprocess.run([*mount, "true"], capture_output=True, check=False).returncode:
        pytest.skip("a disk of our own cannot be mounted here")
    scored = build(model_folder, tmp_path / "scored")
    with serving() as hub:
        env = environment(hub, tmp_path, TMPDIR=str(disk))
        done = subprocess.run(
            [*mount, *command(scored)], env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert hub.repositories == {}
    assert (done.returncode, done.stdout) == (2, "")
    assert "No space left on device" in done.stderr.strip().splitlines()[-1]
    assert "Traceback" not in done.stderr
