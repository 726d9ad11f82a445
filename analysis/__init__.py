"""Annotated dataset to findings: figures, statistics, reports. Imports `curate.store` and nothing else of curate."""
