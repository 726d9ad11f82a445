"""Annotated dataset to model: objectives that use the precomputed masks and weights. Of curate it needs how a dataset
is stored and weighed, models, and what commands share; of analysis nothing."""
