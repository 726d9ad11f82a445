"""Work for a pool whose processes die of it; a module of its own, so that those that take their place have little to import."""

import os

import polars as pl


def dies_on_row_4(frame: pl.DataFrame) -> pl.DataFrame:
    if frame.filter((pl.col("row") == 4) & pl.col("reason").is_null()).height:
        os._exit(1)
    return frame
