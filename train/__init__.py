"""Annotated dataset to model: `python -m train.sft | compare | export`. Of curate it imports the store, the model's
files, the taxonomy, errors and console.

What decides a gradient, in the order in which to read it:

    data            rows of Parquet to batches; packing; the one shift from a token to the logits that predict it
    objectives      the weight of each token, by objective; options in objective_options
    windows         equations (5) to (7) on the confidence of the model in training
    cross_entropy   loss and gradient of the weighted tokens, in chunks of the logits
    head            puts that into the model's forward
    trainer         the denominator, over micro-batches and ranks; sampling: the order of samples

The rest opens and checks what a run is given (opening, inputs, arguments, checkpoints), says what it will do and has
done (plan, metrics, card), or is a command of its own (sft, export, compare with study and study_report).
"""
