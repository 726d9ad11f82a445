"""The label vocabulary: 13 CUDA-sensitive categories, and where a token stands.

The stored values are the positions in these tuples, so the order is part of the dataset's format: append, never
reorder.
"""

from __future__ import annotations

from enum import IntEnum

__all__ = ["CATEGORIES", "LOCATIONS", "NOT_DERIVED", "PAPER_CATEGORIES", "Category", "Location"]


class Category(IntEnum):
    """What execution constraint a token is tied to; `category` in the dataset (uint8), by name in the DuckDB view."""

    NEUTRAL = 0
    QUALIFIER = 1  # __global__ __device__ __host__ __launch_bounds__ __restrict__
    THREAD_INDEX = 2  # threadIdx blockIdx blockDim gridDim warpSize, cooperative-group ranks, index expressions
    BOUNDARY_GUARD = 3  # conditions on index-derived values
    MEMORY_SPACE = 4  # __shared__ __constant__ __managed__, dynamic shared memory
    SYNCHRONISATION = 5  # block, warp, group, barrier, pipeline
    WARP_PRIMITIVE = 6  # shuffle, vote, match, reduce
    ATOMIC = 7  # atomics and fences
    LAUNCH = 8  # <<<>>>, dim3, cudaLaunchKernel, occupancy
    RUNTIME_API = 9  # memory, streams, events, errors, graphs (an allowlist)
    VECTOR_ACCESS = 10  # float4, __ldg, reinterpret_cast to a vector type
    MATH_INTRINSIC = 11  # precision and math intrinsics
    ASYNC_TENSOR = 12  # async copy, tensor cores, inline PTX
    LOOP_DIRECTIVE = 13  # #pragma unroll


CATEGORIES: tuple[str, ...] = tuple(c.name.lower() for c in Category)

PAPER_CATEGORIES = (Category.THREAD_INDEX, Category.MEMORY_SPACE, Category.LAUNCH)
"""Categories whose whole statements form the paper's narrower label set (`statement`)."""


class Location(IntEnum):
    """Where a token stands; decides Mcuda of equation (3). The launch set-up is apart so that `launch_scope` can
    change later."""

    NONE = 0
    KERNEL = 1  # the whole definition of a `__global__` function: qualifiers, signature, body
    DEVICE_FUNCTION = 2  # likewise for `__device__`
    LAUNCH = 3  # the `<<<...>>>` expression with its arguments
    LAUNCH_SETUP = 4  # dim3 and integer declarations that feed a launch


LOCATIONS: tuple[str, ...] = tuple(c.name.lower() for c in Location)

NOT_DERIVED = 255
"""`index_distance` of a token that is not derived from a thread index; 0 is the builtin itself."""
