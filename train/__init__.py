"""Annotated dataset to model: `python -m train.sft | compare | export`. Of curate it imports the store, the model's
files, the taxonomy, errors and console."""
