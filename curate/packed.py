"""Linear layers of a model on a CPU, with weights packed once for oneDNN.

PyTorch multiplies float32 matrices with MKL, which packs the weights anew at every call and, on processors of other
makers, takes code paths for older ones. oneDNN with packed weights computes the same products (the sums in another
order) faster; `tests/benchmarks` measures by how much.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

__all__ = ["PackedLinear", "can_pack", "pack_linear_layers"]

_TYPICAL_ROWS = 1024  # tokens of a sample, for which the layout is chosen; any number works


def can_pack(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether this PyTorch has oneDNN's packed product for float32 on a CPU."""
    available = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return available and dtype == torch.float32 and device.type == "cpu"


class PackedLinear(nn.Module):
    """x W^T + b, for inference; the weight is kept in oneDNN's own layout, as many bytes as the plain one."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        self.bias = linear.bias
        self.packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach(), _TYPICAL_ROWS)

    def forward(self, x: Float[Tensor, "*batch K"]) -> Float[Tensor, "*batch N"]:
        return torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")


def pack_linear_layers(model: nn.Module) -> int:
    """Replaces every `nn.Linear` (subclasses excepted: they may compute something else) in place; returns how many."""
    count = 0
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Linear:
                setattr(module, name, PackedLinear(child))
                count += 1
    return count
