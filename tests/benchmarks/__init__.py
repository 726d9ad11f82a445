"""Measurements of speed, memory and size: `python -m tests.benchmarks`. Never part of the tests: figures of a shared
machine prove nothing, so that each stands beside another one of the same run."""
