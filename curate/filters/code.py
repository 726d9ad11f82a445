"""Filters on what the syntax tree found in the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from curate.config import BuildConfig
from curate.filters.types import Filter

__all__ = ["KERNEL_SYNTAX_ERRORS", "NO_CUDA", "NO_KERNEL"]


def _no_cuda(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    if not row["code_spans"]:
        return "no C++ or CUDA code in the response"
    return None if any(row["char_category"]) or row["kernels"] else "the code holds no CUDA construct"


def _no_kernel(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    if row["kernels"]:
        return None
    return f"no __global__ function is defined; device functions {row['device_functions']}, launches {row['launches']}"


def _kernel_syntax_errors(row: Mapping[str, Any], config: BuildConfig) -> str | None:
    share = row["error_share"]
    return f"{share:.3f} of the kernels' bytes are syntax errors" if share > config.max_error_share else None


NO_CUDA = Filter("no_cuda", "parse", ("code_spans", "char_category", "kernels"), _no_cuda)
NO_KERNEL = Filter("no_kernel", "parse", ("kernels", "device_functions", "launches"), _no_kernel)
KERNEL_SYNTAX_ERRORS = Filter(
    "kernel_syntax_errors", "parse", ("error_share",), _kernel_syntax_errors, ("max_error_share",)
)
