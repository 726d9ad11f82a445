"""Several finished datasets as one: may they be joined, how their rows are numbered, and what becomes of copies."""

from curate.merging.inputs import Input, Inputs, read_inputs
from curate.merging.parts import MergedPart, plan_parts, standing, tables

__all__ = ["Input", "Inputs", "MergedPart", "plan_parts", "read_inputs", "standing", "tables"]
