"""What a process that parses loads before its first row."""

from __future__ import annotations

import subprocess
import sys


def test_processes_that_parse_do_without_torch() -> None:
    """They import the module of the work that they are sent; torch is two thirds of the time of that."""
    code = "import curate.driver, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
