"""What is kept of a row's code to find its copies: two hashes, band hashes, and sketches of its shingles."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import rensa
from jaxtyping import Bool, UInt64
from numpy import ndarray as Array

from curate.duplicates.operations import profile_of
from curate.duplicates.tokens import Tokens, code_tokens
from curate.syntax import CodeLabels, Parsed

__all__ = [
    "BANDS",
    "ROWS",
    "SHINGLE",
    "SKETCH",
    "Fingerprint",
    "candidate_probability",
    "fingerprint",
    "fingerprint_tokens",
]

SHINGLE = 7
"""Tokens of a shingle."""
BANDS, ROWS = 40, 8
"""LSH: 40 bands of 8 MinHash values, 4 of the device code and 4 of the whole (160 permutations each)."""
SKETCH = 512
"""Hashes kept of a set of shingles; similarities of documents with no more of them are exact."""

_SEED = 42
_HALF = BANDS * ROWS // 2
_PRIME, _MIX1, _MIX2, _OWN = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB, 0xD6E8FEB86659FD93)
)
_BAND_NUMBERS = np.arange(BANDS, dtype=np.uint64)


@dataclass(frozen=True)
class Fingerprint:
    """Small enough to be a row of a table (about 3 kB for a document of 2 kB).

    `code_hash`: equal where the code is equal but for comments and white space. `shape_hash`: equal where it is so
    after a consistent renaming of what each text declares itself. `bands`: 40 little-endian uint64; two documents are
    compared where one of them is equal. `device`, `whole`: sorted uint32 hashes of the shingles of the device code and
    of everything, the 512 smallest. `profile`: what the device code computes with (`curate.duplicates.operations`).
    """

    code_hash: bytes
    shape_hash: bytes
    bands: bytes
    device: bytes
    whole: bytes
    profile: bytes


def candidate_probability(device: float, whole: float | None = None) -> float:
    """The S-curve: the chance that two documents share a band, from the Jaccard similarities of their device code and
    of the whole: 1 - (1 - device^4 whole^4)^40. At 0.8 it is 0.999, at 0.7 0.91, at 0.5 0.14, at 0.4 0.03.
    """
    whole = device if whole is None else whole
    return float(1 - (1 - device ** (ROWS // 2) * whole ** (ROWS // 2)) ** BANDS)


def fingerprint(blocks: Sequence[tuple[Parsed, CodeLabels]]) -> Fingerprint | None:
    """The fingerprint of an answer's code blocks, taken as one text; None where they hold no token.

    Names are renamed consistently over all blocks. Never raises; time is linear in the length.
    """
    return fingerprint_tokens(code_tokens(blocks))


def fingerprint_tokens(tokens: Tokens) -> Fingerprint | None:
    """`fingerprint` of tokens that are read already."""
    if not tokens.texts:
        return None
    hashes = np.array(_hashes(tokens.texts), np.uint64)
    hashes[[name is not None for name in tokens.names]] = _OWN
    repeats = _repeats(tokens.names)
    shapes = hashes + repeats * _PRIME
    shingles, inside = _shingles(hashes, repeats, tokens.device)
    device = shingles[inside]
    return Fingerprint(
        _digest(b"\0".join(tokens.texts)),
        _digest(shapes.tobytes()),
        _bands(device, shingles),
        _sketch(device),
        _sketch(shingles),
        profile_of(tokens, shapes),
    )


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


_known: dict[bytes, int] = {}


def _hashes(texts: Sequence[bytes]) -> list[int]:
    """64-bit hashes; those of short tokens are remembered, since a corpus repeats them."""
    known = _known
    try:
        return [known[text] for text in texts]
    except KeyError:
        pass
    if len(known) > 2**17:
        known.clear()
    result = []
    for text in texts:
        value = known.get(text)
        if value is None:
            value = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
            if len(text) <= 64:
                known[text] = value
        result.append(value)
    return result


def _repeats(names: Sequence[bytes | None]) -> UInt64[Array, "n"]:
    """(n,) tokens back to the last one of the same name, 0 for the first one, and for tokens that are no own name.

    With it instead of the name two texts are equal where, and only where, a consistent renaming turns one into the
    other (Baker's encoding for parameterised matching).
    """
    last: dict[bytes, int] = {}
    result = [0] * len(names)
    for place, name in enumerate(names):
        if name is not None:
            if name in last:
                result[place] = place - last[name]
            last[name] = place
    return np.array(result, np.uint64)


def _shingles(
    hashes: UInt64[Array, "n"], repeats: UInt64[Array, "n"], device: Bool[Array, "n"]
) -> tuple[UInt64[Array, "m"], Bool[Array, "m"]]:
    """Hashes of all runs of `SHINGLE` tokens, and which of them lie in device code.

    A name counts by its last occurrence inside the run: a change elsewhere in the text does not reach it.
    """
    size = min(SHINGLE, len(hashes))
    count = len(hashes) - size + 1
    total = np.zeros(count, np.uint64)
    for offset in range(size):
        near = repeats[offset : offset + count]
        total += hashes[offset : offset + count] + np.where(near <= offset, near, 0) * _PRIME
        total *= _MIX1
        total ^= total >> np.uint64(29)
    total *= _MIX2
    total ^= total >> np.uint64(32)
    return total, device[:count] & device[size - 1 :]


def _minhash(shingles: UInt64[Array, "n"], seed: int) -> UInt64[Array, "k"]:
    matrix = rensa.RMinHash.digest_matrix_from_flat_token_hashes(shingles, [0, len(shingles)], _HALF, seed)
    return np.array(matrix.to_rows()[0], np.uint64)


def _bands(device: UInt64[Array, "d"], whole: UInt64[Array, "w"]) -> bytes:
    # permutations of its own for each: where all code is device code, the halves of a band stay independent
    halves = [_minhash(part, seed).reshape(BANDS, -1) for part, seed in ((device, _SEED), (whole, _SEED + 1))]
    band = _BAND_NUMBERS.copy()
    for column in np.concatenate(halves, axis=1).T:
        band = (band + column) * _MIX1
        band ^= band >> np.uint64(31)
    return band.astype("<u8").tobytes()


def _sketch(shingles: UInt64[Array, "n"]) -> bytes:
    hashes = (shingles >> np.uint64(32)).astype(np.uint32)
    hashes.sort()
    distinct = np.ones(len(hashes), bool)
    np.not_equal(hashes[1:], hashes[:-1], out=distinct[1:])
    return hashes[distinct][:SKETCH].astype("<u4").tobytes()
