"""A Hugging Face Hub on this machine: a real HTTP server that speaks the parts of the Hub's API which publishing and
loading a dataset use, checks what it is sent as the Hub does, and fails on demand.

    with serving() as hub:                      # HF_ENDPOINT=hub.url, HF_TOKEN=hub.writer
        hub.fail("PUT /lfs/", "drop", times=2)  # the next two uploads lose their connection
        ...
        hub.repositories["dataset", "user/name"].files("main")

The package index has no test server that takes uploads (`hf-local-hub` starts a program that it does not hold, `olah`
only mirrors the real Hub).
"""

from __future__ import annotations

import base64
import contextlib
import fnmatch
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import sleep
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

import yaml

CHUNK = 1 << 16
PAGE = 5  # entries of a tree in one answer, so that more than one page is read
LICENSES = frozenset({"apache-2.0", "mit", "cc-by-4.0", "cc0-1.0", "bsd-3-clause", "other", "unknown"})
SIZES = re.compile(r"n<1K|n>1T|(1|10|100)[KMB]<n<(1|10|100)0?[KMBT]")


@dataclass(frozen=True)
class Blob:
    """A file of a commit. `lfs`: SHA-256 of a large one, whose content lies apart."""

    oid: str
    size: int
    lfs: str | None = None


@dataclass
class Repository:
    """Commits are whole trees: path -> Blob."""

    private: bool
    trees: dict[str, dict[str, Blob]] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    large: dict[str, bytes] = field(default_factory=dict)

    def commit(self, branch: str, tree: dict[str, Blob], title: str) -> str:
        parent = self.branches.get(branch)
        told = json.dumps([parent, title, sorted((path, blob.oid) for path, blob in tree.items())])
        name = hashlib.sha1(told.encode()).hexdigest()
        self.trees[name], self.parents[name], self.titles[name] = tree, parent, title
        self.branches[branch] = name
        return name

    def add(self, content: bytes) -> Blob:
        oid = hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
        self.blobs[oid] = content
        return Blob(oid, len(content))

    def resolve(self, revision: str) -> str | None:
        """The commit of a branch, tag, or (short) commit name."""
        found = self.branches.get(revision) or self.tags.get(revision)
        if found is None and re.fullmatch(r"[0-9a-f]{7,40}", revision):
            found = next((name for name in self.trees if name.startswith(revision)), None)
        return found

    def content(self, blob: Blob) -> bytes:
        return self.blobs[blob.oid] if blob.lfs is None else self.large[blob.lfs]

    def files(self, revision: str = "main") -> dict[str, bytes]:
        """Everything that a reader of the revision sees."""
        commit = self.resolve(revision)
        assert commit is not None
        return {path: self.content(blob) for path, blob in self.trees[commit].items()}


@dataclass
class Failure:
    """`how`: `drop` (the connection closes), `drop after` (the request is done, its answer lost), an HTTP status, or a
    function that is called before the request is served."""

    pattern: re.Pattern[str]
    how: str | int | Callable[[], object]
    times: int
    skip: int


class Hub:
    """The state, and what happens to it. Users: `user` (who may write and read) and `other`."""

    writer, reader, other = "hf_WriterTokenOfTheTest1", "hf_ReaderTokenOfTheTest1", "hf_OtherTokenOfTheTest11"

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.requests: list[str] = []
        self.failures: list[Failure] = []
        self.lock = threading.RLock()
        self.url = ""
        self.multipart_from = 1 << 62  # bytes from which on a file is sent in parts
        self.part_bytes = 1 << 20
        self.bytes_per_second: float | None = None
        self.line = threading.Lock()
        self.pending: dict[tuple[str, str, int], bytes] = {}

    def fail(self, request: str, how: str | int | Callable[[], object], times: int = 1, skip: int = 0) -> None:
        """Lets the next requests fail whose `METHOD /path` begins with a match of `request`."""
        self.failures.append(Failure(re.compile(request), how, times, skip))

    def failure(self, request: str) -> Failure | None:
        with self.lock:
            for failure in self.failures:
                if failure.times and failure.pattern.match(request):
                    if failure.skip:
                        failure.skip -= 1
                        continue
                    failure.times -= 1
                    return failure
        return None

    def create(self, kind: str, name: str, private: bool = False) -> Repository:
        repository = self.repositories[kind, name] = Repository(private)
        attributes = repository.add(b"*.parquet filter=lfs diff=lfs merge=lfs -text\n*.png filter=lfs -text\n")
        repository.commit("main", {".gitattributes": attributes}, "initial commit")
        return repository

    def may_write(self, token: str | None, name: str) -> bool:
        return {self.writer: "user", self.other: "other"}.get(token or "") == name.split("/")[0]

    def may_read(self, token: str | None, name: str, repository: Repository) -> bool:
        owner = name.split("/")[0]
        return not repository.private or (owner == "user" and token in (self.writer, self.reader))


class Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


KIND = r"/api/(?P<kind>model|dataset|space)s/(?P<name>[\w.-]+/[\w.-]+)"
ROUTES: list[tuple[str, re.Pattern[str], str]] = [
    (method, re.compile(pattern), handler)
    for method, pattern, handler in (
        ("GET", r"/api/whoami-v2", "whoami"),
        ("POST", r"/api/repos/create", "create"),
        ("POST", r"/api/validate-yaml", "validate"),
        ("GET", KIND + r"(?:/revision/(?P<revision>[^/]+))?", "info"),
        ("GET", KIND + r"/tree/(?P<revision>[^/]+)(?:/(?P<path>.*))?", "tree"),
        ("POST", KIND + r"/paths-info/(?P<revision>[^/]+)", "paths_info"),
        ("GET", KIND + r"/refs", "refs"),
        ("POST", KIND + r"/tag/(?P<revision>[^/]+)", "tag"),
        ("DELETE", KIND + r"/tag/(?P<revision>[^/]+)", "untag"),
        ("POST", KIND + r"/branch/(?P<revision>[^/]+)", "branch"),
        ("POST", KIND + r"/preupload/(?P<revision>[^/]+)", "preupload"),
        ("POST", KIND + r"/commit/(?P<revision>[^/]+)", "commit"),
        ("POST", r"/(?P<kind>dataset)s/(?P<name>[\w.-]+/[\w.-]+)\.git/info/lfs/objects/batch", "lfs_batch"),
        ("PUT", r"/lfs/(?P<name>[\w.-]+/[\w.-]+)/(?P<oid>[0-9a-f]{64})", "lfs_put"),
        ("PUT", r"/lfs/(?P<name>[\w.-]+/[\w.-]+)/(?P<oid>[0-9a-f]{64})/(?P<part>\d+)", "lfs_part"),
        ("POST", r"/lfs/(?P<name>[\w.-]+/[\w.-]+)/(?P<oid>[0-9a-f]{64})/complete", "lfs_complete"),
        ("POST", r"/lfs/(?P<name>[\w.-]+/[\w.-]+)/(?P<oid>[0-9a-f]{64})/verify", "lfs_verify"),
        ("GET", r"/(?P<kind>dataset)s/(?P<name>[\w.-]+/[\w.-]+)/resolve/(?P<revision>[^/]+)/(?P<path>.+)", "resolve"),
    )
]


class Handler(BaseHTTPRequestHandler):
    """One request; the methods are named after what the Hub calls them."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # head and body are two packets, and the second would wait 40 ms
    wbufsize = 1 << 16
    hub: Hub
    body: bytes
    query: dict[str, list[str]]

    def do_GET(self) -> None:
        self.serve()

    do_HEAD = do_POST = do_PUT = do_DELETE = do_GET

    def log_message(self, *words: object) -> None:
        pass

    def serve(self) -> None:
        target = urlsplit(self.path)
        self.query = parse_qs(target.query)
        request = f"{self.command} {target.path}"
        self.hub.requests.append(request)
        failure = self.hub.failure(request)
        how = failure.how if failure else None
        self.read_body(half=how == "drop")
        if how == "drop":
            self.hang_up()
            return
        if isinstance(how, int):
            self.answer({"error": "planned"}, how, {"Retry-After": "0"} if how == 429 else {})
            return
        try:
            if callable(how):
                how()
            if how == "drop after":
                self.answer = lambda *a, **k: self.hang_up()  # type: ignore[method-assign]
            self.route(target.path)
        except Refused as no:
            told = {"X-Error-Code": no.code, "X-Error-Message": no.message}
            self.answer({"error": no.message or no.code}, no.status, {k: v for k, v in told.items() if v})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(2)

    def read_body(self, half: bool = False) -> None:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            pieces = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            self.body = b"".join(pieces)
            return
        left = int(self.headers.get("Content-Length") or 0) // (2 if half else 1)
        pieces = []
        while left and (piece := self.rfile.read(min(CHUNK, left))):
            pieces.append(piece)
            left -= len(piece)
            if self.hub.bytes_per_second and self.command == "PUT":
                with self.hub.line:  # one line for all connections
                    sleep(len(piece) / self.hub.bytes_per_second)
        self.body = b"".join(pieces)

    def answer(self, content: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        told = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def route(self, path: str) -> None:
        method = "GET" if self.command == "HEAD" else self.command
        for wanted, pattern, handler in ROUTES:
            found = pattern.fullmatch(path)
            if found and wanted == method:
                given = {k: unquote(v) for k, v in found.groupdict().items() if v is not None}
                with self.hub.lock:
                    getattr(self, handler)(**given)
                return
        raise Refused(404, "", f"no route {self.command} {path}")

    @property
    def token(self) -> str | None:
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ") or None

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def known(self) -> str:
        token = self.token
        if token not in (self.hub.writer, self.hub.reader, self.hub.other):
            raise Refused(401, "", "Invalid credentials in Authorization header")
        return token

    def found(self, kind: str, name: str, *, write: bool = False) -> Repository:
        if self.token:
            self.known()
        repository = self.hub.repositories.get((kind, name))
        if repository is None or not self.hub.may_read(self.token, name, repository):
            raise Refused(404 if self.token else 401, "RepoNotFound", "Repository not found")
        if write and not self.hub.may_write(self.token, name):
            raise Refused(403, "", "you don't have the rights to write to this repository")
        return repository

    def at(self, repository: Repository, revision: str) -> str:
        commit = repository.resolve(revision)
        if commit is None:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return commit

    def whoami(self) -> None:
        token = self.known()
        name = "other" if token == self.hub.other else "user"
        role = "read" if token == self.hub.reader else "write"
        self.answer({"type": "user", "name": name, "orgs": [], "auth": {"accessToken": {"role": role}}})

    def create(self) -> None:
        self.known()
        asked = self.json
        owner = asked.get("organization") or "user"
        kind, name = asked.get("type", "model"), f"{owner}/{asked['name']}"
        if not self.hub.may_write(self.token, name):
            raise Refused(403, "", f"You don't have the rights to create a {kind} under the namespace {owner!r}")
        if (kind, name) in self.hub.repositories:
            raise Refused(409, "", "You already created this repository")
        self.hub.create(kind, name, asked.get("visibility") == "private")
        self.answer({"url": f"{self.hub.url}/{kind}s/{name}", "name": name, "id": name})

    def validate(self) -> None:
        found = re.match(r"---\n(.*?)\n---\n", self.json["content"], re.DOTALL)
        errors = []
        head = yaml.safe_load(found[1]) if found else None
        if not isinstance(head, dict):
            errors.append("empty or no metadata in the head")
        else:
            licenses = head.get("license", [])
            for license in [licenses] if isinstance(licenses, str) else licenses:
                if license not in LICENSES:
                    errors.append(f'"license" must be one of the list, not {license}')
            errors += [f'"size_categories": {x}' for x in head.get("size_categories", []) if not SIZES.fullmatch(x)]
            errors += [f'"language": {x}' for x in head.get("language", []) if not re.fullmatch("[a-z]{2,3}|code", x)]
            configs = {c["config_name"] for c in head.get("configs", [])}
            infos = head.get("dataset_info", [])
            for info in [infos] if isinstance(infos, dict) else infos:
                if info["config_name"] not in configs:
                    errors.append(f'"dataset_info" of {info["config_name"]}, which is no configuration')
        if errors:
            self.answer({"errors": [{"message": e} for e in errors], "warnings": []}, 400)
        else:
            self.answer({"errors": [], "warnings": []})

    def info(self, kind: str, name: str, revision: str = "main") -> None:
        repository = self.found(kind, name)
        commit = self.at(repository, revision)
        siblings = [{"rfilename": path} for path in sorted(repository.trees[commit])]
        told = {"_id": name, "id": name, "sha": commit, "private": repository.private, "tags": [], "siblings": siblings}
        self.answer({**told, "downloads": 0, "likes": 0, "gated": False, "disabled": False, "author": name.split("/")[0],
                     "lastModified": "2026-01-01T00:00:00.000Z", "createdAt": "2026-01-01T00:00:00.000Z"})  # fmt: skip

    def entry(self, path: str, blob: Blob) -> dict[str, Any]:
        lfs = {} if blob.lfs is None else {"lfs": {"oid": blob.lfs, "size": blob.size, "pointerSize": 134}}
        return {"type": "file", "oid": blob.oid, "size": blob.size, "path": path, **lfs}

    def tree(self, kind: str, name: str, revision: str, path: str = "") -> None:
        repository = self.found(kind, name)
        tree = repository.trees[self.at(repository, revision)]
        inside = f"{path.rstrip('/')}/" if path else ""
        below = {p: b for p, b in tree.items() if p.startswith(inside)}
        if path and not below:
            raise Refused(404, "EntryNotFound", f"{path} does not exist")
        folders = {p[: p.index("/", len(inside))] for p in below if "/" in p[len(inside) :]}
        entries = [{"type": "directory", "oid": "0" * 40, "size": 0, "path": f} for f in sorted(folders)]
        recursive = self.query.get("recursive", ["false"])[0].lower() == "true"
        entries += [self.entry(p, b) for p, b in sorted(below.items()) if recursive or "/" not in p[len(inside) :]]
        start = int(self.query.get("cursor", ["0"])[0])
        told = {}
        if start + PAGE < len(entries):
            query = "&".join(f"{k}={quote(v[0])}" for k, v in self.query.items() if k != "cursor")
            address = f"{self.hub.url}{urlsplit(self.path).path}?{query}&cursor={start + PAGE}"
            told = {"Link": f'<{address}>; rel="next"'}
        self.answer(entries[start : start + PAGE], headers=told)

    def paths_info(self, kind: str, name: str, revision: str) -> None:
        repository = self.found(kind, name)
        tree = repository.trees[self.at(repository, revision)]
        paths = parse_qs(self.body.decode()).get("paths", [])
        told = []
        for path in paths:
            if path in tree:
                told.append(self.entry(path, tree[path]))
            elif any(p.startswith(f"{path}/") for p in tree):
                told.append({"type": "directory", "oid": "0" * 40, "size": 0, "path": path})
        self.answer(told)

    def refs(self, kind: str, name: str) -> None:
        repository = self.found(kind, name)
        told = {
            what: [{"name": n, "ref": f"refs/{where}/{n}", "targetCommit": c} for n, c in refs.items()]
            for what, where, refs in (("branches", "heads", repository.branches), ("tags", "tags", repository.tags))
        }
        self.answer({**told, "converts": [], "pullRequests": []})

    def tag(self, kind: str, name: str, revision: str) -> None:
        repository = self.found(kind, name, write=True)
        tag = self.json["tag"]
        if tag in repository.tags:
            raise Refused(409, "", f"Tag reference exists already: {tag}")
        repository.tags[tag] = self.at(repository, revision)
        self.answer({})

    def untag(self, kind: str, name: str, revision: str) -> None:
        if self.found(kind, name, write=True).tags.pop(revision, None) is None:
            raise Refused(404, "RevisionNotFound", "no such tag")
        self.answer({})

    def branch(self, kind: str, name: str, revision: str) -> None:
        repository = self.found(kind, name, write=True)
        if revision in repository.branches:
            raise Refused(409, "", f"Reference already exists: {revision}")
        repository.branches[revision] = self.at(repository, self.json.get("startingPoint", "main"))
        self.answer({})

    def preupload(self, kind: str, name: str, revision: str) -> None:
        repository = self.found(kind, name, write=True)
        tree = repository.trees[self.at(repository, revision)]
        ignore = self.json.get("gitIgnore")
        if ignore is None:
            blob = tree.get(".gitignore")
            ignore = "" if blob is None else repository.content(blob).decode()
        told = []
        for file in self.json["files"]:
            path, sample = file["path"], base64.b64decode(file["sample"])
            large = file["size"] > 10_000_000 or path.endswith((".parquet", ".png")) or b"\0" in sample
            there = tree.get(path)
            told.append({
                "path": path, "uploadMode": "lfs" if large else "regular",
                "shouldIgnore": any(fnmatch.fnmatch(path, line) for line in ignore.split()),
                "oid": None if there is None else there.lfs or there.oid,
            })  # fmt: skip
        self.answer({"files": told})

    def lfs_batch(self, kind: str, name: str) -> None:
        repository = self.found(kind, name, write=True)
        told = []
        for item in self.json["objects"]:
            oid, size = item["oid"], item["size"]
            if oid in repository.large:
                told.append({"oid": oid, "size": size})
                continue
            where = f"{self.hub.url}/lfs/{name}/{oid}"
            upload: dict[str, Any] = {"href": where}
            if size >= self.hub.multipart_from:
                chunk = self.hub.part_bytes
                parts = {str(n + 1): f"{where}/{n + 1}" for n in range(-(-size // chunk))}
                upload = {"href": f"{where}/complete", "header": {"chunk_size": str(chunk), **parts}}
            told.append(
                {"oid": oid, "size": size, "actions": {"upload": upload, "verify": {"href": f"{where}/verify"}}}
            )
        self.answer({"transfer": "basic", "objects": told})

    def keep(self, name: str, oid: str, content: bytes) -> None:
        if hashlib.sha256(content).hexdigest() != oid:
            raise Refused(400, "", "the content does not have the SHA-256 that was told")
        self.hub.repositories["dataset", name].large[oid] = content

    def lfs_put(self, name: str, oid: str) -> None:
        self.keep(name, oid, self.body)
        self.answer({})

    def lfs_part(self, name: str, oid: str, part: str) -> None:
        self.hub.pending[name, oid, int(part)] = self.body
        self.answer(b"", headers={"ETag": f'"{hashlib.md5(self.body).hexdigest()}"'})

    def lfs_complete(self, name: str, oid: str) -> None:
        parts = [self.hub.pending[name, oid, part["partNumber"]] for part in self.json["parts"]]
        etags = [f'"{hashlib.md5(part).hexdigest()}"' for part in parts]
        if etags != [part["etag"] for part in self.json["parts"]]:
            raise Refused(400, "", "the parts do not have these etags")
        self.keep(name, oid, b"".join(parts))
        self.answer({})

    def lfs_verify(self, name: str, oid: str) -> None:
        content = self.hub.repositories["dataset", name].large.get(oid)
        if content is None or len(content) != self.json["size"]:
            raise Refused(422, "", "not uploaded")
        self.answer({})

    def commit(self, kind: str, name: str, revision: str) -> None:
        repository = self.found(kind, name, write=True)
        if revision not in repository.branches:
            raise Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        (header, *lines) = [json.loads(line) for line in self.body.splitlines()]
        parent = header["value"].get("parentCommit")
        if parent is not None and parent != repository.branches[revision]:
            raise Refused(412, "", "A commit has happened since. Please refresh and try again.")
        tree = dict(repository.trees[repository.branches[revision]])
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                tree[value["path"]] = repository.add(base64.b64decode(value["content"]))
            elif line["key"] == "lfsFile":
                if value["oid"] not in repository.large:
                    raise Refused(400, "", f"LFS pointer pointed to a file that does not exist: {value['path']}")
                pointer = (
                    f"version https://git-lfs.github.com/spec/v1\noid sha256:{value['oid']}\nsize {value['size']}\n"
                )
                size = len(repository.large[value["oid"]])
                tree[value["path"]] = Blob(repository.add(pointer.encode()).oid, size, value["oid"])
            elif line["key"] == "deletedFile":
                if tree.pop(value["path"], None) is None:
                    raise Refused(404, "EntryNotFound", "A file with this name doesn't exist")
            else:
                raise Refused(400, "", f"operation {line['key']}")
        made = repository.commit(revision, tree, header["value"]["summary"])
        self.answer({"success": True, "commitOid": made, "commitUrl": f"{self.hub.url}/{kind}s/{name}/commit/{made}"})

    def resolve(self, kind: str, name: str, revision: str, path: str) -> None:
        repository = self.found(kind, name)
        commit = self.at(repository, revision)
        blob = repository.trees[commit].get(path)
        if blob is None:
            raise Refused(404, "EntryNotFound", "Entry not found")
        content = repository.content(blob)
        etag = f'"{blob.lfs or blob.oid}"'
        told = {
            "X-Repo-Commit": commit,
            "ETag": etag,
            "Accept-Ranges": "bytes",
            "Content-Type": "application/octet-stream",
        }
        if blob.lfs:
            told |= {"X-Linked-Etag": etag, "X-Linked-Size": str(blob.size)}
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
        if wanted:
            first, last = int(wanted[1]), min(int(wanted[2] or len(content) - 1), len(content) - 1)
            if first >= len(content):
                raise Refused(416)
            told["Content-Range"] = f"bytes {first}-{last}/{len(content)}"
            self.answer(content[first : last + 1], 206, told)
        else:
            self.answer(content, headers=told)


@contextlib.contextmanager
def serving() -> Iterator[Hub]:
    """A Hub on a port of its own, until the end of the block."""
    hub = Hub()
    handler = type("HubHandler", (Handler,), {"hub": hub})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        hub.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            server.shutdown()
            thread.join()
