"""Annotated dataset to model: `python -m train.sft | compare | export`. It never tokenises, and derives no mask from a
template: ids, masks and weights are those of the dataset.

These files alone decide a gradient: data, objectives, windows, cross_entropy, head, trainer; to be read in this order:

    data            rows of Parquet to batches; packing; the one shift from a token to the logits that predict it; the
                    order of samples
    objectives      the weight of each token, by objective; options in objective_options
    windows         equations (5) to (7) on the confidence of the model in training
    cross_entropy   loss and gradient of the weighted tokens, in chunks of the logits
    head            puts that into the model's forward
    trainer         the denominator, over micro-batches and ranks

The rest decides none: the commands (sft, compare, export), inputs (opens and checks what a run is given; makes faults
of the Trainer one line), reports (its plan, its log and figures, the card of the model, the statistics and pictures of
a study). Of curate it imports store and schema, the model's files, what the masks are, and what every command shares.
"""
