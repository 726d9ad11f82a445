"""What a run is given, opened and checked before its first step: datasets, model, options of the Trainer, checkpoints.
Whatever is wrong with it is one line that says what to do.
"""
