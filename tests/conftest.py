"""What the tests share: a tiny model with a tokenizer of its own, and rows of known content. No network."""

from __future__ import annotations

import atexit
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if "PYTEST_XDIST_WORKER" in os.environ:  # the processes share the processors: threads of several wait for each other
    os.environ.setdefault("OMP_NUM_THREADS", "1")
if "HF_DATASETS_CACHE" not in os.environ:  # `datasets` keeps a copy of each file that it reads: not in the user's cache
    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="cuset-tests-")
    atexit.register(shutil.rmtree, os.environ["HF_DATASETS_CACHE"], ignore_errors=True)

import hypothesis
import pytest
from jaxtyping import install_import_hook

# No test fails for the time that other work on the machine costs it; `tests/pace.py` counts the test's own.
hypothesis.settings.register_profile("cuset", deadline=None)
hypothesis.settings.load_profile("cuset")

# Shapes in signatures are checked while the tests run; the hook must stand before the modules are imported.
install_import_hook(
    [f"curate.{name}" for name in ("align", "causal", "offsets", "regions", "score", "statistics", "tokens", "weights")]
    + [f"train.{name}" for name in ("cross_entropy", "objectives", "windows")],
    "beartype.beartype",
)

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

KERNEL = """\
__global__ void scale(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}

void launch(float *x, float a, int n) {
    dim3 block(256);
    int grid = (n + 255) / 256;
    scale<<<grid, block>>>(x, a, n);
    cudaDeviceSynchronize();
}
"""


FUNCTIONS = ("sinf", "cosf", "sqrtf", "fabsf", "tanhf", "expf", "log1pf", "rsqrtf", "floorf", "ceilf", "erff", "cbrtf")


def fenced(code: str = KERNEL, tag: str = "cuda") -> str:
    """An answer that holds the code in a fenced block."""
    return f"Here is the kernel:\n\n```{tag}\n{code}```\n"


def train_tokenizer(texts: Sequence[str] = (KERNEL,), vocabulary: int = 400) -> Any:
    """A byte-level BPE with `<|endoftext|>`, `<|im_start|>` and `<|im_end|>`, trained on the spot."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.train_from_iterator(
        list(texts),
        trainers.BpeTrainer(
            vocab_size=vocabulary, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
        ),
    )  # fmt: skip
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<|im_start|>", eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    return train_tokenizer()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    """A Llama of random weights, small enough to score a sample in a few milliseconds."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=8192, bos_token_id=1, eos_token_id=2, tie_word_embeddings=True,
    )  # fmt: skip
    folder = tmp_path_factory.mktemp("model") / "tiny-llama"
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def write_rows(tmp_path: Path) -> Callable[..., Path]:
    """Writes rows as a JSONL file; strings are written as they are, so that a line can be broken."""

    def write(rows: Sequence[dict[str, Any] | str], name: str = "rows.jsonl") -> Path:
        lines = [r if isinstance(r, str) else json.dumps(r, ensure_ascii=False) for r in rows]
        path = tmp_path / name
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


def kernel(n: int) -> str:
    """KERNEL with another name and other work, so that it is no copy of those of other n."""
    draw = random.Random(n)
    work = "".join(
        f"    if (i < n) x[i] {draw.choice('+-*/')}= {draw.choice(FUNCTIONS)}(x[i] {draw.choice('+-*/')} {draw.randint(2, 99)}.f);\n"
        for _ in range(5)
    )
    return KERNEL.replace("scale", f"scale{n}").replace("    if (i < n) x[i] *= a;\n", "    x[i] *= a;\n" + work)


def pair(n: int, code: str | None = None, **more: Any) -> dict[str, Any]:
    """A good row; `n` makes it unlike the others."""
    return {"prompt": f"Scale a vector, variant {n}.", "response": fenced(code or kernel(n)), **more}


@pytest.fixture(autouse=True, scope="session")
def own_cache_of_looks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What publishing keeps of the parts it has looked into is not the user's."""
    import curate.publishing.looked

    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setattr(curate.publishing.looked, "cache_folder", lambda: folder)
        yield


@pytest.fixture(autouse=True)
def no_compiler(request: pytest.FixtureRequest) -> Iterator[None]:
    """Builds do not start compilers, which would double the time of the tests; those marked `compiles` do."""
    with pytest.MonkeyPatch.context() as patch:
        if request.node.get_closest_marker("compiles") is None:
            import curate.judge
            from curate.compiling import CompileResult

            def compiled(sources, settings, folder, jobs):
                return ((row, CompileResult("ok", "none", "sm_90")) for row, _ in sources)

            patch.setattr(curate.judge, "check_all", compiled)
        yield
