"""The devices that score: what `--device` names, and whether they are there."""

from __future__ import annotations

import torch

from curate.errors import OptionError

__all__ = ["find_devices"]

_KNOWN = "give auto, cpu, cuda (every GPU), cuda:N, or several with commas between them"


def find_devices(spec: str) -> tuple[torch.device, ...]:
    """The devices that `auto`, `cpu`, `cuda`, `cuda:N`, or several of them with commas, name; a process scores on each.

    `auto` and `cuda` are every GPU that PyTorch sees (CUDA_VISIBLE_DEVICES); without a GPU `auto` is the CPU. All are
    of one kind, since figures are those of a kind of arithmetic. Raises OptionError.
    """
    gpus = torch.cuda.device_count()
    every = tuple(torch.device("cuda", n) for n in range(gpus))
    found: list[torch.device] = []
    for name in spec.split(","):
        found += every or (torch.device("cpu"),) if name == "auto" else _find(name, every)
    if len({device.type for device in found}) > 1:
        raise OptionError(f"--device {spec}: figures of a CPU and of a GPU do not belong into one dataset")
    if len(set(found)) < len(found) and found[0].type == "cuda":
        raise OptionError(f"--device {spec}: names a GPU twice")
    return tuple(found)


def _find(name: str, every: tuple[torch.device, ...]) -> tuple[torch.device, ...]:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise OptionError(f"--device {name}: not a device; {_KNOWN}") from error
    if device.type not in {"cpu", "cuda"}:
        raise OptionError(f"--device {name}: not supported; {_KNOWN}")
    if device.type == "cpu":
        return (device,)
    if (device.index or 0) >= len(every):
        raise OptionError(f"--device {name}: PyTorch sees {len(every)} GPUs here; give --device cpu")
    return every if device.index is None else (device,)
