"""A `transformers.Trainer` whose faults of arguments, checkpoints and disks are one line each."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from transformers import Trainer

from curate.errors import CusetError, OptionError
from train.inputs.checkpoints import reading, writing

__all__ = ["CheckedTrainer"]


@contextlib.contextmanager
def _arguments() -> Iterator[None]:
    """What the libraries raise for arguments of the Trainer that they find out about late."""
    try:
        yield
    except CusetError:
        raise
    except (ValueError, TypeError, KeyError, ImportError, ArithmeticError) as error:
        said = " ".join(str(error.args[0] if error.args else error).split())[:300]
        raise OptionError(f"--training: the Trainer refuses these arguments: {said}") from error


class CheckedTrainer(Trainer):
    """Raises OptionError for arguments, DatasetError for a damaged checkpoint, TrainingError for a full disk."""

    __init__ = _arguments()(Trainer.__init__)
    _get_dataloader = _arguments()(Trainer._get_dataloader)
    create_optimizer = _arguments()(Trainer.create_optimizer)
    create_scheduler = _arguments()(Trainer.create_scheduler)
    _determine_best_metric = _arguments()(Trainer._determine_best_metric)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, *args: Any, **kwargs: Any) -> None:
        with reading(resume_from_checkpoint):
            super()._load_from_checkpoint(resume_from_checkpoint, *args, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_rng_state(checkpoint)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        with writing(str(self.args.output_dir)):
            super()._save_checkpoint(*args, **kwargs)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        with writing(output_dir or str(self.args.output_dir)):
            super().save_model(output_dir, _internal_call)
