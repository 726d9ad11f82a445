"""Instructions that this project writes around material which has none of its own."""

from __future__ import annotations

__all__ = ["cuda_for_module", "file_by_comment", "file_by_name", "file_by_signature", "triton_for_module"]


def cuda_for_module(module: str) -> str:
    """For rows whose prompt column is a PyTorch module."""
    return f"Write a CUDA kernel for this PyTorch module.\n\n```python\n{module.strip()}\n```"


def triton_for_module(module: str) -> str:
    """For rows whose answer is Triton."""
    return f"Write a Triton kernel for this PyTorch module.\n\n```python\n{module.strip()}\n```"


def file_by_comment(comment: str) -> str:
    """For a source file that documents itself."""
    return f"Write CUDA C++ source code that matches this description.\n\n{comment}"


def file_by_signature(signature: str) -> str:
    """For a source file without documentation that defines a kernel."""
    return f"Write a CUDA C++ source file that defines this kernel.\n\n```cuda\n{signature};\n```"


def file_by_name(name: str) -> str:
    """For a source file with neither documentation nor kernel."""
    return f"Write the CUDA C++ source file `{name}`."
