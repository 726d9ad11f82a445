"""Annotated dataset to model: `python -m train.sft | compare | export`. Of curate it imports the store, the model's
files, the taxonomy, errors and console.

What consumes the masks and weights, and so decides a gradient, in the order in which to read it:

    data            rows of Parquet to batches; packing; the one shift from a token to the logits that predict it; the
                    order of samples
    objectives      the weight of each token, by objective; options in objective_options
    windows         equations (5) to (7) on the confidence of the model in training
    cross_entropy   loss and gradient of the weighted tokens, in chunks of the logits
    head            puts that into the model's forward
    trainer         the denominator, over micro-batches and ranks

The rest decides none: the commands (sft, compare, export), inputs (opens and checks what a run is given), reports (its
plan, its log and figures, the card of the model, the statistics and pictures of a study).
"""
