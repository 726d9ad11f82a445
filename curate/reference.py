"""A second model that gives its probability to the same token ids (`--reference`): both must read the same tokens."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from curate.errors import ModelError
from curate.model import ModelFiles, locate_model

__all__ = ["as_reference", "locate_reference", "tokens_hash"]


def tokens_hash(tokenizer: Any) -> str:
    """SHA-256 over what decides the ids of a text: vocabulary, merges, normaliser, added tokens.

    Padding, truncation, and the special tokens put around a text are left out: scoring never uses them.
    """
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    kept = {k: v for k, v in spec.items() if k not in {"padding", "truncation", "post_processor"}}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()


@contextlib.contextmanager
def as_reference() -> Iterator[None]:
    """Errors about the second model name its own option."""
    try:
        yield
    except ModelError as error:
        raise ModelError(str(error).replace("--model ", "--reference ", 1)) from error


def locate_reference(model: str, tokenizer: Any) -> ModelFiles:
    """Finds the model; raises ModelError where its tokenizer is not the given one, or has no `tokenizer.json`."""
    with as_reference():
        files = locate_model(model)
        other = files.load_tokenizer()
    if not getattr(other, "is_fast", False) or tokens_hash(other) != tokens_hash(tokenizer):
        raise ModelError(
            f"--reference {files.name}: its tokenizer is not that of --model; give a model of the same family"
        )
    return files
