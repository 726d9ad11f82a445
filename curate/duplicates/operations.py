"""What code computes with and on which memory: a sum is no maximum, however alike their loops are."""

from __future__ import annotations

import hashlib

import numpy as np
from jaxtyping import UInt64
from numpy import ndarray as Array

from curate.duplicates.tokens import Tokens

__all__ = ["PROFILE", "other_operations", "profile_of"]

PROFILE = 24
"""Bytes of a profile: hashes of the functions, of the operators, of all but operators and numbers."""

_OPERATORS = frozenset(
    b"+ - * / % & | ^ ! ~ < > <= >= == != && || << >> = += -= *= /= %= &= |= ^= <<= >>= ++ -- ?".split()
)
_UPDATES = frozenset(b"-= *= /= %= &= |= ^= <<= >>=".split())
_FUNCTIONS = frozenset(
    b"max min abs exp exp2 exp10 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan sincos asin acos atan atan2 "
    b"sinh cosh tanh asinh acosh atanh pow erf erfc erfinv tgamma lgamma floor ceil round rint trunc mod fma copysign "
    b"hypot norm popc clz ffs brev sad isnan isinf signbit saturate "
    b"atomicAdd atomicSub atomicMax atomicMin atomicExch atomicCAS atomicAnd atomicOr atomicXor atomicInc atomicDec "
    b"INFINITY FLT_MAX FLT_MIN DBL_MAX INT_MAX INT_MIN".split()
)
_PLAIN = frozenset(
    b"__global__ __device__ __host__ __restrict__ __restrict __launch_bounds__ __forceinline__ __noinline__ __inline__ "
    b"__inline __align__ __attribute__ __extension__".split()
)
"""Of the names with two underscores those that change neither the result nor the memory that a kernel works on."""
_ENDINGS = tuple({name.lower() for name in _FUNCTIONS} | {name + b"f" for name in _FUNCTIONS})


def profile_of(tokens: Tokens, shapes: UInt64[Array, "n"]) -> bytes:
    """24 bytes; `shapes` are the tokens' hashes after renaming."""
    places = np.flatnonzero(tokens.device)
    texts = [tokens.texts[place] for place in places.tolist()]
    operators = [text for text in texts if text in _OPERATORS]
    used = {_stem(text) for text in {*texts} if text.lower().endswith(_ENDINGS)} & _FUNCTIONS
    used |= _UPDATES.intersection(operators)
    # memory spaces, cached loads, barriers, shuffles: the same loop over constant memory is another lesson
    own = {text for text in {*tokens.texts} if text.startswith(b"__") and text.islower()} - _PLAIN
    used |= {text for text in own if _stem(text) not in _FUNCTIONS}
    # a product begins at another number than a sum, and is still the same loop
    other = [text not in _OPERATORS and not 48 <= text[0] <= 57 for text in texts]
    rest = shapes[places[other]] if texts else shapes[:0]
    parts = (b" ".join(sorted(used)), b" ".join(operators), rest.tobytes())
    return b"".join(hashlib.blake2b(part, digest_size=8).digest() for part in parts)


def _stem(name: bytes) -> bytes:
    """`fmaxf`, `__expf` and `max` for what they compute: precision is no operation of its own."""
    if name in _FUNCTIONS:
        return name
    bare = name.strip(b"_")
    for stem in (bare, bare.removesuffix(b"f"), bare.removeprefix(b"f"), bare.removeprefix(b"f").removesuffix(b"f")):
        if stem in _FUNCTIONS:
            return stem
    return name


def other_operations(one: bytes, other: bytes) -> bool:
    """Whether two kernels compute something else: with other functions, or the same code with other operators."""
    if one[:8] != other[:8]:
        return True
    return one[16:] == other[16:] and one[8:16] != other[8:16]
