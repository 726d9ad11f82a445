"""Annotated dataset to model: objectives that use the precomputed masks and weights. Imports `curate.store` and
nothing else of curate."""
