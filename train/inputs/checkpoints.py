"""Checkpoints that the Trainer leaves: the one to go on from, and one line for what is damaged or cannot be written."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import torch

from curate.errors import CusetError, DatasetError, TrainingError, first_line

__all__ = ["newest_checkpoint", "reading", "writing"]

_STATE = "trainer_state.json"
_NEEDED = (("optimizer.pt", "optimizer*", "global_step*"), ("scheduler.pt", "global_step*"), ("rng_state*.pth",))
"""Beside the weights: optimiser, schedule (either may be in DeepSpeed's folder global_step) and random numbers. Without
one of them the Trainer would begin it anew, and say nothing."""


def newest_checkpoint(out: Path) -> Path | None:
    """The newest whole checkpoint in `out`; None where there is none.

    The Trainer writes trainer_state.json last: a folder without it is half a checkpoint. Raises DatasetError where the
    newest one lacks or has lost what a run needs to go on to the bit.
    """
    names = {path: re.fullmatch(r"checkpoint-(\d+)", path.name) for path in out.glob("checkpoint-*")}
    found = [(int(name[1]), path) for path, name in names.items() if name and (path / _STATE).is_file()]
    if not found:
        return None
    step, newest = max(found)
    with reading(newest):
        state = json.loads((newest / _STATE).read_text(encoding="utf-8"))
        if not isinstance(state, dict) or state.get("global_step") != step or not state.get("max_steps"):
            raise ValueError(f"{_STATE} is not that of step {step}")
        for patterns in _NEEDED:
            if not any(any(newest.glob(pattern)) for pattern in patterns):
                raise ValueError(f"no {patterns[0]}")
    return newest


@contextlib.contextmanager
def reading(checkpoint: str | Path | None) -> Iterator[None]:
    """Whatever is raised inside becomes a DatasetError that names the checkpoint."""
    try:
        yield
    except (CusetError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # of pickle, zip, safetensors, JSON or peft, for a file that is cut or of another model
        raise DatasetError(
            f"{checkpoint}: damaged ({_said(error)}); move it away, and --resume goes on from the one before"
        ) from error


@contextlib.contextmanager
def writing(out: str | Path) -> Iterator[None]:
    """A disk that is full or that nobody may write to becomes a TrainingError."""
    try:
        yield
    except (CusetError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # torch and safetensors have errors of their own for it
        why = error.strerror if isinstance(error, OSError) and error.strerror else _said(error)
        raise TrainingError(
            f"{out}: cannot be written ({why}); make room, and --resume goes on from the last whole checkpoint"
        ) from error


def _said(error: BaseException) -> str:
    return first_line(error).split(". ")[0][:200]
