"""Annotated dataset to findings: figures, statistics, reports. Of curate it imports the store, errors and console."""
