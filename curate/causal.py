"""A causal model loaded for scoring: checked once, then logits at chosen positions, never more than a chunk of them."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Int
from torch import Tensor

from curate.errors import ModelError, OptionError
from curate.model import ModelFiles
from curate.packed import can_pack, pack_linear_layers

__all__ = ["CausalModel"]

_CHUNK_VALUES = 1 << 23  # logits in memory at once: 32 MiB in float32


class CausalModel:
    """A `transformers` causal model on a device.

    Raises ModelError for what is no causal model, OptionError for a length beyond its positions.
    """

    def __init__(self, files: ModelFiles, dtype: torch.dtype, device: torch.device, max_length: int) -> None:
        self.name, self.dtype, self.device = files.name, dtype, device
        self.model = files.load_model(dtype, str(device))
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        if limit and max_length > limit:
            raise OptionError(
                f"--max-length {max_length}: {files.name} has {limit} positions; give --max-length {limit}"
            )
        self.vocabulary = int(self.model.get_input_embeddings().num_embeddings)
        if can_pack(dtype, device):
            pack_linear_layers(self.model)
        self.head = self.model.get_output_embeddings()
        self.plain_head = self._head_is_plain()

    @torch.inference_mode()
    def _head_is_plain(self) -> bool:
        """Whether logits are the output embedding of the body's last hidden state, and nothing else.

        Some models cap or scale their logits after the head. They are scored through their own forward pass, whose
        logits are right whatever it does, at the cost of memory. Raises ModelError for a model whose logits are no
        numbers, or where what follows a token moves its probability: that is not a causal model.
        """
        ids = torch.arange(8, device=self.device)[None] % self.vocabulary
        own = self.model(input_ids=ids, use_cache=False).logits.float()
        if not torch.isfinite(own).all():
            raise ModelError(f"{self.name}: the model's logits are no numbers; its weights are damaged")
        other = ids.clone()
        other[0, -1] = (ids[0, -1] + 1) % self.vocabulary
        moved = (self.model(input_ids=other, use_cache=False).logits.float() - own)[:, :-1].abs().max()
        if moved > (1e-4 if self.dtype == torch.float32 else 1e-2) * own.abs().max():
            raise ModelError(f"{self.name}: not a causal model: a later token changes the probability of earlier ones")
        if self.head is None or self.model.base_model is self.model:
            return False
        ours = self.head(self.model.base_model(input_ids=ids, use_cache=False).last_hidden_state).float()
        return ours.shape == own.shape and torch.allclose(ours, own, rtol=1e-4, atol=1e-4 * float(own.abs().max()))

    def logits(
        self,
        ids: Int[Tensor, "B L"],
        mask: Int[Tensor, "B L"] | None,
        rows: Int[Tensor, "P"],
        columns: Int[Tensor, "P"],
    ) -> Iterator[tuple[slice, Tensor]]:
        """Float32 logits at the P positions, as (which of them, (p, vocabulary)), to be used before the next is asked
        for."""
        inputs = {"input_ids": ids, "use_cache": False} | ({} if mask is None else {"attention_mask": mask})
        states = self.model.base_model(**inputs).last_hidden_state if self.plain_head else self.model(**inputs).logits
        states = states[rows, columns]  # (P, hidden), or (P, vocabulary) from the model's own forward pass
        step = max(1, _CHUNK_VALUES // self.vocabulary)
        for first in range(0, len(states), step):
            part = slice(first, first + step)
            yield part, (self.head(states[part]) if self.plain_head else states[part]).float()
