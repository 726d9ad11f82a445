"""The engine `ray`: the parse pass and the annotating pass on a Ray cluster, of one machine or of many.

Both are `map_batches` of Ray Data over the numbers of shards: tasks parse, a pool of actors holds the model. The rows
themselves travel by way of the build's folder, which every machine has to see under the same path (a shared file
system): the driver cuts the sources into shards there, each process reads its shard and writes its parts, and gives
back counts (`curate.cluster_work`). So a shard whose parts stand is left out, a process that is killed costs the time
of its shard, and the parts hold the bytes that they hold without Ray.

What compares rows with each other or sums over all (judging with compilers, duplicates and benchmarks; regions; the
manifest) stays with the driver, on the processors of its machine.
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import uuid
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from curate.cluster_start import Connection, one_line, quiet
from curate.cluster_work import Annotate, Place, as_error, introduce, look_around, measure_shard, rows_file
from curate.config import BuildConfig
from curate.errors import CusetError, DatasetError, ModelError, OptionError
from curate.folder import OutFolder
from curate.manifest import PACKAGES
from curate.parts import Parts
from curate.store import write_frame

if TYPE_CHECKING:
    from curate.score import Scorer

__all__ = ["Cluster"]


class Cluster:
    """Runs the passes of a build that work on shards by themselves.

    Raises OptionError where the cluster cannot be reached or has not what is asked of it, ModelError and the errors of
    the stages as they are, CusetError where the cluster fails.
    """

    def __init__(self, config: BuildConfig, scorer: Scorer | None, folder: OutFolder) -> None:
        self.config, self.scorer, self.folder = config, scorer, folder
        self.connection = Connection(config.ray_address)

    def start(self) -> None:
        """Connects, and finds out how many actors with how many processors and GPUs there will be."""
        machines = self.connection.open()
        self.machines, self.gpus = machines, self.config.actor_gpus
        if self.gpus is None:
            wanted = self.config.device == "auto" and not self.config.skip_scoring
            self.gpus = 1.0 if machines.gpus >= 1 and wanted else 0.0
        default = len(machines.nodes)
        if self.gpus:
            default = int(machines.gpus / self.gpus)
        elif self.config.skip_scoring:
            default = machines.cpus
        self.actors = self.config.actors or max(1, default)
        if self.actors * self.gpus > machines.gpus:
            raise OptionError(
                f"--actors {self.actors} with --actor-gpus {self.gpus:g}: the cluster has {machines.gpus:g} GPUs"
            )
        if self.actors > machines.cpus:
            raise OptionError(f"--actors {self.actors}: the cluster has {machines.cpus} processors, and each takes one")
        share = -(-self.actors // len(machines.nodes))  # actors on the fullest machine
        self.threads = 1 if self.gpus else max(1, machines.smallest // share)
        model, reference = (_absolute(x) for x in (self.config.model, self.config.reference))
        self.sent = dataclasses.replace(
            self.config, device="cuda" if self.gpus else "cpu", model=model or "", reference=reference, source=(),
            out=self.folder.path.resolve(), against=(), execute=None,
        )  # fmt: skip

    def introduced(self, inputs: Mapping[str, Any], load: bool) -> dict[str, Any]:
        """What the actors will score with, once one has loaded the model where `load` says so; raises what that raises.

        Raises ModelError where they would take another model or tokenizer than `inputs` names.
        """
        import ray

        task = ray.remote(introduce).options(num_cpus=self.threads, num_gpus=self.gpus, max_retries=0)
        try:
            with one_line(), quiet():
                said = ray.get(task.remote(self.sent, self.scorer, self.threads, load))
        except CusetError as error:
            raise ModelError(
                f"--model {self.config.model}: a process of the cluster cannot load it: {error}"
            ) from error
        if "error" in said:
            raise as_error(said["error"])
        for name in said.keys() & inputs.keys() - {"scorer"}:
            if any(inputs[name].get(key) != value for key, value in said[name].items()):  # we know the size as well
                raise ModelError(
                    f"--model {self.config.model}: the {name} is not the same on the machines of the cluster as here"
                )
        return {"scorer": said["scorer"]} if "scorer" in said else {}

    @contextlib.contextmanager
    def at_work(self, parsed: Path) -> Iterator[None]:
        """Keeps a folder of the cluster's own in the journal, while the build's folder is locked.

        Raises DatasetError or OptionError where a machine does not see it, or has other versions of what writes.
        """
        journal = self.folder.journal.resolve()
        for folder in journal.glob("cluster-*"):  # of a build that was killed
            shutil.rmtree(folder, ignore_errors=True)
        scratch = journal / f"cluster-{uuid.uuid4().hex[:12]}"
        scratch.mkdir(parents=True)
        parts = Parts(self.folder.path.resolve(), self.config.extra_scores)
        self.place = Place(parts, parsed.resolve(), journal / "verdicts", journal / "previous", scratch)
        try:
            self._look_around(scratch)
            yield
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def _look_around(self, scratch: Path) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        asked = []
        for node in self.machines.nodes:
            there = NodeAffinitySchedulingStrategy(node, soft=False)
            asked.append(
                ray.remote(look_around).options(num_cpus=0, scheduling_strategy=there).remote(scratch, PACKAGES)
            )
        with one_line(), quiet():
            answers = ray.get(asked)
        own = {name: version(name) for name in PACKAGES}
        for host, sees, packages in answers:
            if not sees:
                raise DatasetError(
                    f"--out {self.folder.path}: {host} of the cluster cannot write there; give a folder of a file"
                    " system that all its machines share"
                )
            other = [f"{name} {v} (here {own[name]})" for name, v in packages.items() if v != own[name]]
            if other:
                raise OptionError(f"--engine ray: {host} has {', '.join(other)}; install the same versions everywhere")

    def measured(self, shards: Iterator[tuple[int, pl.DataFrame]]) -> Iterator[int]:
        """Parses shards into their files; yields the rows of each that is finished."""
        numbers = []
        for number, frame in shards:
            write_frame(frame, rows_file(self.place.scratch, number))
            numbers.append(number)
        arguments = {"config": self.sent, "place": self.place}
        settings = {"fn_kwargs": arguments, "num_cpus": 1, "concurrency": self.config.jobs}
        for rows, _ in self._map(measure_shard, numbers, settings):
            yield rows

    def annotated(self, numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
        """Annotates judged shards and writes their parts; yields (rows that the model was asked for, response tokens
        that it scored) of each."""
        from ray.data import ActorPoolStrategy

        settings = {
            "fn_constructor_args": (self.sent, self.scorer, self.place, self.threads), "num_cpus": self.threads,
            "num_gpus": self.gpus, "compute": ActorPoolStrategy(size=min(self.actors, max(1, len(numbers)))),
        }  # fmt: skip
        yield from self._map(Annotate, numbers, settings)

    def _map(self, work: Any, numbers: Sequence[int], settings: Mapping[str, Any]) -> Iterator[tuple[int, int]]:
        if not numbers:
            return
        import ray

        with one_line(), quiet():
            data = ray.data.from_items([{"number": n} for n in numbers], override_num_blocks=len(numbers))
            for answer in data.map_batches(work, batch_size=1, **settings).iter_rows():
                if answer["error"]:
                    raise as_error(answer["error"])
                yield answer["rows"], answer["tokens"]

    def stop(self) -> None:
        """Ends the connection, and a cluster of our own."""
        self.connection.close()


def _absolute(model: str | None) -> str | None:
    """A model's folder or file by a path that does not depend on where a process was started."""
    if model is None or not Path(model).expanduser().exists():
        return model
    return str(Path(model).expanduser().resolve())
