"""Why an input row could not be read: every reason of this stage, in one place."""

from __future__ import annotations

__all__ = ["READ_REASONS"]

READ_REASONS: dict[str, str] = {
    "broken_json": "the line is no JSON, or it is cut off or nested too deeply",
    "broken_csv": "a quote in the record is not closed, or text follows a closing quote",
    "ragged_row": "the record has more or fewer fields than the header names columns",
    "not_an_object": "the line is JSON, but no object with columns",
    "wrong_type": "a column or a message holds something else than text",
    "missing_prompt": "the prompt is absent or null, or no user turn comes before the answer",
    "missing_response": "the response is absent or null",
    "no_assistant_turn": "the conversation holds no answer",
    "other_language": "the row says that its solution is in another language than CUDA",
    "not_utf8": "the text is not UTF-8",
    "nul_character": "the text holds a NUL character",
    "lone_surrogate": "the text holds half of a surrogate pair, which has no UTF-8 form",
    "binary_file": "the file holds binary data under the name of a source file",
    "too_large": "the line, or the source file, is larger than any hand-written answer",
    "truncated": "the compressed file is cut off here; the rows before are whole",
    "symlink_outside": "the link leads out of the folder",
    "path_outside": "the name of a file in an archive leads out of the archive's folder",
    "unreadable": "the file cannot be opened, or is no regular file",
}
"""Reason -> one line of meaning. Blank prompts and responses are read, and left to the filters."""
