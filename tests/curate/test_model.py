"""Finding a model: what is there, what is not, and the embedded one."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import kernel, pair

from curate.config import BuildConfig
from curate.driver import build_dataset
from curate.errors import ModelError
from curate.keys import INPUTS, scores_key, stage_keys
from curate.model import locate_model
from curate.score import StubScorer


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


def test_weights_that_lack_a_tensor_are_refused(tmp_path: Path, model_folder: Path) -> None:
    """transformers would fill the gap with random numbers, and every build would score otherwise."""
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    tensors = load_file(folder / "model.safetensors")
    save_file(
        {k: v for k, v in tensors.items() if "layers.1." not in k}, folder / "model.safetensors", {"format": "pt"}
    )
    with pytest.raises(ModelError, match=r"lack \d+ of the model's tensors"):
        locate_model(str(folder)).load_model("float32", "cpu")


@pytest.mark.parametrize("name", ["x" * 5000, "a\0b"])
def test_a_name_that_no_file_can_have_is_one_line(name: str) -> None:
    with pytest.raises(ModelError):
        locate_model(name)


def test_a_file_that_is_no_gguf_is_refused_before_it_is_converted(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"not a model")
    with pytest.raises(ModelError, match="not a GGUF file"):
        locate_model(str(tmp_path / "m.gguf"))


def test_code_of_a_model_folder_is_never_run(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\nclass M: pass\nC = M\n")
    config = json.loads((folder / "config.json").read_text())
    config |= {"auto_map": {"AutoConfig": "evil.C", "AutoModelForCausalLM": "evil.M"}, "model_type": "evil"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        locate_model(str(folder)).load_model("float32", "cpu")
    assert not (tmp_path / "ran").exists()


def test_parameters_are_counted_without_the_weights(tmp_path: Path, model_folder: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(model_folder, folder)
    model = locate_model(str(folder)).load_model("float32", "cpu")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight  # shared: counted once
    counted = sum(p.numel() for p in model.parameters())
    (folder / "model.safetensors").unlink()
    assert (
        locate_model(str(folder)).parameters()
        == counted
        == 2 * (2 * 32 * 32 + 2 * 16 * 32 + 3 * 32 * 64 + 64) + 32 + 32 * model.config.vocab_size
    )
    assert locate_model("embedded").parameters() == 134_515_008


def test_a_configuration_that_tells_no_size_is_no_error(tmp_path: Path) -> None:
    for config in ("{}", "not JSON", '{"model_type": "nothing known"}', '{"model_type": "llama", "hidden_size": -3}'):
        (tmp_path / "config.json").write_text(config)
        assert locate_model(str(tmp_path)).parameters() is None


def test_the_manifest_holds_the_parameters_and_no_key_depends_on_them(
    model_folder: Path, tmp_path: Path, write_rows: Callable[..., Path]
) -> None:
    rows = write_rows([pair(1, kernel(1))])
    settings: dict[str, Any] = {"source": (str(rows),), "model": str(model_folder), "jobs": 1, "compile": False}
    built = build_dataset(BuildConfig(out=tmp_path / "a", **settings), StubScorer())
    files = locate_model(str(model_folder))
    assert built["model"] == files.identity() | {"parameters": files.parameters()}
    assert f"{files.parameters():,} parameters" in (tmp_path / "a" / "README.md").read_text()
    skipped = build_dataset(BuildConfig(out=tmp_path / "b", skip_scoring=True, **settings))
    assert skipped["model"]["parameters"] is None
    inputs = {name: built[name] for name in INPUTS if name in built}
    config = BuildConfig(out=tmp_path / "a", **settings)
    before = inputs | {"model": files.identity()}
    assert stage_keys(config, inputs) == stage_keys(config, before) == built["stage_keys"]
    assert scores_key(config, inputs) == scores_key(config, before)
    assert scores_key(config, inputs) != scores_key(config, inputs | {"model": files.identity() | {"sha256": "0"}})
