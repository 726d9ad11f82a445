"""Finding a model: what is there, what is not, and the embedded one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from curate.errors import ModelError
from curate.model import locate_model


@pytest.mark.parametrize(
    "name", ["./not-there", "/not/there", "a/b/c", "missing.gguf", "no such model!", "nobody-xyz/nothing"]
)
def test_an_unknown_model_is_one_line(name: str) -> None:
    with pytest.raises(ModelError) as error:
        locate_model(name)
    assert name in str(error.value)
    assert "\n" not in str(error.value)


def test_a_folder_without_config_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"config\.json"):
        locate_model(str(tmp_path))


def test_a_folder_without_tokenizer_is_one_line(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder, ignore=shutil.ignore_patterns("tokenizer*", "chat_template*"))
    with pytest.raises(ModelError, match="cannot load the tokenizer") as error:
        locate_model(str(folder)).load_tokenizer()
    assert "\n" not in str(error.value)


def test_damaged_weights_are_one_line(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    (folder / "model.safetensors").write_bytes(b"not weights")
    with pytest.raises(ModelError, match="cannot load the weights"):
        locate_model(str(folder)).load_model("float32", "cpu")


def test_the_identity_follows_the_weights_and_names_no_path(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "tiny-llama"
    shutil.copytree(model_folder, folder)
    first = locate_model(str(model_folder)).identity()
    assert locate_model(str(folder)).identity() == first
    assert str(tmp_path) not in str(first)
    weights = bytearray((folder / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (folder / "model.safetensors").write_bytes(weights)
    assert locate_model(str(folder)).identity() != first


def test_the_embedded_model_splits_digits_as_it_was_trained() -> None:
    """GGUF drops the rule; without it white space before a digit would glue to it."""
    tokenizer = locate_model("embedded").load_tokenizer()
    assert tokenizer.convert_ids_to_tokens(tokenizer("=\n    128")["input_ids"]) == ["=", "ĊĠĠĠĠ", "1", "2", "8"]
