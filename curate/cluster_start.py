"""Finding or starting a Ray cluster, and every way in which that fails as one line.

Ray itself waits for minutes where nobody answers, and tells in pages what went wrong; so its port is tried first.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from curate.errors import CusetError, OptionError, first_line
from curate.pool import cores

__all__ = ["Connection", "Machines", "quiet"]

_SECONDS = 5.0
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""How a client opens HTTP/2, which Ray speaks, with empty SETTINGS; RFC 9113, section 3.4."""
_STORE_BYTES = 2**28
"""Of shared memory that a cluster of our own takes: nothing but numbers goes through it."""
_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_BACKEND_LOG_LEVEL": "fatal",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "1",  # a task without GPUs sees none
    "RAY_worker_niceness": "0",  # as high as the processes of the local engine
}
"""Of Ray's own, in the environment before it is imported."""


@dataclass(frozen=True)
class Machines:
    """What a cluster has: its nodes by id, the processors of the smallest, and processors and GPUs of all."""

    nodes: tuple[str, ...]
    smallest: int
    cpus: int
    gpus: float


class Connection:
    """A connection to the cluster at `address`, or to one that is started here and ends with it.

    Where the process is connected to a cluster already and no address is given, that one is used, and left as it is.
    """

    def __init__(self, address: str | None) -> None:
        self.address = address
        self._ours = False
        self._folder: Path | None = None

    def open(self) -> Machines:
        """Connects. Raises OptionError where Ray is missing, nobody answers, or somebody else than Ray does."""
        if find_spec("ray") is None:
            raise OptionError("--engine ray: Ray is not installed: pip install cuset[ray]")
        if self.address is not None:
            _knock(self.address)
        for name, value in _SETTINGS.items():
            os.environ.setdefault(name, value)
        with quiet():
            try:
                import ray
                import ray.data
            except ImportError as error:
                raise OptionError(f"--engine ray: cannot be loaded ({error}): pip install cuset[ray]") from error
            logging.getLogger("ray").setLevel(logging.ERROR)
            if self.address is not None and ray.is_initialized():
                raise OptionError("--ray-address: this process is connected to a cluster already: ray.shutdown() first")
            if not ray.is_initialized():
                with _silent():
                    self._open(ray)
            context = ray.data.DataContext.get_current()
            context.enable_progress_bars = context.print_on_execution_start = False
            logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        setattr(ray._private.worker, "_worker_logs_enabled", False)  # noqa: B010  # what it says of lost workers, in pages
        return _machines(ray)

    def _open(self, ray: Any) -> None:
        common = {"log_to_driver": False, "configure_logging": False}
        try:
            if self.address is not None:
                ray.init(address=self.address, **common)
            else:
                self._start(ray, common)
        except (Exception, SystemExit) as error:
            what = "no cluster can be started here" if self.address is None else f"--ray-address {self.address}"
            raise OptionError(f"--engine ray: {what}: {first_line(error)}") from error
        finally:
            self._ours = True

    def _start(self, ray: Any, common: dict[str, Any]) -> None:
        near = "/tmp" if Path("/tmp").is_dir() else None  # the paths of its sockets must not be long
        self._folder = Path(tempfile.mkdtemp(prefix="cuset-ray-", dir=near))
        for again in (False, True):  # Ray waits for half a minute, which on a busy machine may be too short
            try:
                ray.init(
                    address="local", num_cpus=cores(), include_dashboard=False, object_store_memory=_STORE_BYTES,
                    _temp_dir=str(self._folder), **common,
                )  # fmt: skip
                return
            except Exception:
                ray.shutdown()
                if again:
                    raise

    def close(self) -> None:
        """Ends the connection, and the cluster with it where it was started here."""
        if self._ours:
            import ray

            ray.shutdown()
            self._ours = False
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)


def _machines(ray: Any) -> Machines:
    nodes = [node for node in ray.nodes() if node["Alive"]]
    cpus = [int(node["Resources"].get("CPU", 0)) for node in nodes]
    at_work = [n for n in cpus if n]
    if not at_work:
        raise OptionError("--engine ray: the cluster has no processors to work with (ray status shows them)")
    gpus = sum(node["Resources"].get("GPU", 0) for node in nodes)
    names = tuple(node["NodeID"] for node, n in zip(nodes, cpus, strict=True) if n)
    return Machines(names, min(at_work), sum(cpus), gpus)


def _knock(address: str) -> None:
    """Whether Ray answers there, within seconds."""
    host, _, port = address.rpartition(":")
    option = f"--ray-address {address[:100]}"
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=_SECONDS) as connection:
            if os.environ.get("RAY_USE_TLS") == "1":
                return
            connection.sendall(_PREFACE)
            answer = connection.recv(9)
    except TimeoutError:
        answer = b""
    except (OSError, OverflowError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or error
        raise OptionError(
            f"{option}: nobody answers there ({why}); `ray start --head` says the address of its cluster"
        ) from error
    if len(answer) < 4 or answer[3] != 4:  # a server of HTTP/2 begins with SETTINGS, whose number is 4
        raise OptionError(
            f"{option}: who answers there is not a Ray cluster; `ray start --head` says the address of its cluster"
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Ray warns of its own use of its own settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Without standard error, to which Ray's native code tells its log level; what goes wrong it raises as well."""
    sys.stderr.flush()
    kept, nothing = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


@contextlib.contextmanager
def one_line() -> Iterator[None]:
    """Errors of Ray itself, in one line."""
    from ray.exceptions import RayError

    try:
        yield
    except RayError as error:
        said = (str(error).strip().splitlines() or [""])[0][:200]
        raise CusetError(
            f"--engine ray: the cluster has failed ({type(error).__name__}: {said}):"
            " what is done is kept; run the same command again to go on"
        ) from error
