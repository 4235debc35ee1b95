"""The one place that embeds: batches, number formats, layers, maps, prompts, kept vectors."""

import random
import warnings
from itertools import product
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from tokenizers import normalizers

from st_xlret import encode, encoding, export
from st_xlret.encoding import KeptVectors, cut_at_layer, role_prompt
from st_xlret.encoding.batches import padding_options
from st_xlret.modules import CalibrationLayer, transformer_encoder, with_two_encoders
from st_xlret.precision import autocast, computes_in_bf16, resolve_precision
from tests.tiny import sentence, static, tokenizer, transformer

METHODS = {None: "encode", "query": "encode_query", "document": "encode_document"}
OPTIONS = {
    "normalize_embeddings": True,
    "prompt": "wolf ",
    "prompt_name": "query",
    "truncate_dim": 4,
}
OPTIONS |= {
    "convert_to_tensor": True,
    "convert_to_numpy": False,
    "output_value": "token_embeddings",
}


@pytest.fixture(scope="module")
def texts() -> list[str]:
    """Texts whose characters say little about their tokens.

    Some are longer than the model reads, one is empty.
    """
    generator = random.Random(3)
    # A word of unknown letters is one token, however long it is.
    unknown = ["zq" * generator.randint(1, 40) for _ in range(20)]
    known = [sentence(generator, generator.choice([1, 2, 24])) for _ in range(40)]
    return ["", *unknown, *known]


@pytest.fixture(scope="module")
def model() -> SentenceTransformer:
    model = transformer()
    model.prompts = {"query": "sun moon: ", "document": "a star "}
    return model


def record_batches(model) -> list[tuple[int, int]]:
    """The shapes of the batches that the model reads from now on."""
    shapes: list[tuple[int, int]] = []
    model[0].register_forward_pre_hook(
        lambda _, inputs: shapes.append(tuple(inputs[0]["input_ids"].shape))
    )
    return shapes


@pytest.mark.parametrize("option", [None, *OPTIONS])
@pytest.mark.parametrize("role", METHODS)
def test_embeddings_and_options_are_those_of_the_host(model, texts, role, option) -> None:
    options = {option: OPTIONS[option]} if option else {}
    expected = getattr(model, METHODS[role])(texts, **options)
    for batch_size in (1, 2, 1000):
        embedded = encode(model, texts, role=role, batch_size=batch_size, **options)
        assert type(embedded) is type(expected) and len(embedded) == len(texts)
        for ours, host in zip(embedded, expected, strict=True):
            assert ours.shape == host.shape and ours.dtype == host.dtype
            np.testing.assert_allclose(np.asarray(ours), np.asarray(host), atol=1e-6)


def test_one_text_no_text_and_options_that_the_model_does_not_take(model) -> None:
    np.testing.assert_allclose(encode(model, "sun moon"), model.encode("sun moon"), atol=1e-6)
    assert len(encode(model, [])) == 0
    for options, named in (({"batch_size": 0}, "batch_size.*0"), ({"colour": "red"}, "colour")):
        with pytest.raises(ValueError, match=named):
            encode(model, ["sun"], **options)


@pytest.mark.parametrize("precision", ["int8", "uint8", "binary", "ubinary"])
def test_vectors_are_rounded_as_by_the_host(model, texts, precision) -> None:
    expected = model.encode(texts, precision=precision)
    embedded = encode(model, texts, precision=precision)
    assert embedded.shape == expected.shape and embedded.dtype == expected.dtype
    # A last digit of the vector may be another one, and so the number that it is rounded to.
    assert np.mean(embedded != expected) < 0.01
    tensor = encode(model, texts, precision=precision, convert_to_tensor=True)
    assert np.array_equal(tensor.numpy(), embedded)
    tensors = encode(model, texts, precision=precision, convert_to_numpy=False)
    assert np.array_equal(np.stack(tensors), embedded)


def test_one_text_is_rounded_too_and_other_precisions_are_refused(model) -> None:
    expected = model.encode("sun moon", precision="ubinary")
    assert np.array_equal(encode(model, "sun moon", precision="ubinary"), expected)
    with pytest.raises(ValueError, match="'int4' is none of auto, fp32, bf16"):
        encode(model, ["sun"], precision="int4")


def test_batches_are_small_and_little_padded_and_prompts_count(model, texts) -> None:
    shapes = record_batches(model)
    encode(model, texts, role="query", batch_size=1)
    assert sum(rows for rows, _ in shapes) == len(texts)
    assert all(rows * tokens <= 64 for rows, tokens in shapes)
    lengths = encoding.token_lengths(model, [f"sun moon: {text}" for text in texts])
    assert max(tokens for _, tokens in shapes) == max(lengths) == model.max_seq_length
    computed = sum(rows * tokens for rows, tokens in shapes)
    shapes.clear()
    model.encode(texts, prompt="sun moon: ", batch_size=8)
    assert sum(lengths) <= computed < sum(rows * tokens for rows, tokens in shapes)


def test_models_without_padding_or_a_limit(texts) -> None:
    model = static()
    assert encoding.token_lengths(model, texts) is None
    np.testing.assert_allclose(encode(model, texts, batch_size=3), model.encode(texts), atol=1e-6)
    model, texts = transformer(), ["sun", "sun moon star"]
    model[0].tokenizer.model_max_length = int(1e30)
    assert encoding.token_lengths(model, texts) == [
        len(ids) for ids in model.tokenizer(texts)["input_ids"]
    ]
    np.testing.assert_allclose(encode(model, texts), model.encode(texts), atol=1e-6)


def test_padding_in_bf16_on_a_cpu(texts) -> None:
    model = transformer_encoder(tokenizer(), "tiny", max_seq_length=32).to("cpu")
    expected = model.encode(texts)
    shapes = record_batches(model)
    with torch.autocast("cpu", torch.bfloat16):
        embedded = encode(model, texts, batch_size=2)
    assert {tokens for _, tokens in shapes} == {16, 32}
    assert all(rows * tokens <= 2 * 64 for rows, tokens in shapes)
    np.testing.assert_allclose(embedded, expected, atol=0.03)
    assert (
        padding_options(model, 16) and padding_options(model, 20) == padding_options(static()) == {}
    )
    model[0].query_length = 20  # texts are not padded beyond what a model reads
    assert padding_options(model) == {}


@pytest.mark.parametrize(
    ("cpu", "expected"),
    [
        ({"amx_bf16": True}, "bf16"),
        ({"avx512_bf16": True, "cpu_name": "AMD EPYC 9354"}, "bf16"),
        (
            {"avx512_bf16": True, "cpu_name": "Intel(R) Xeon(R) Platinum 8370C"},
            "fp32",
        ),  # slower than float32
    ],
)
def test_auto_takes_bf16_where_it_is_faster(cpu: dict, expected: str, monkeypatch) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: cpu, raising=False)
    assert resolve_precision("auto", torch.device("cpu")) == expected
    assert resolve_precision("bf16", "cpu") == "bf16"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation: expected == "bf16"
    )
    assert resolve_precision("auto", "cuda:1") == expected and not computes_in_bf16("mps")
    with pytest.raises(ValueError, match="int8.*quantize_embeddings"), autocast("int8", "cpu"):
        pass


def test_attention_in_bf16_on_a_gpu_is_not_cudnn_s() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch says that there is no GPU
        with autocast("bf16", "cuda"):
            assert not torch.backends.cuda.cudnn_sdp_enabled()
    assert torch.backends.cuda.cudnn_sdp_enabled()
    with autocast("fp32", "cuda"):
        assert torch.backends.cuda.cudnn_sdp_enabled()


@pytest.mark.parametrize("layer", [0, 1, None])
@pytest.mark.parametrize("batch_size", [1, 32])
def test_a_layer_is_averaged_under_the_attention_mask(layer, batch_size) -> None:
    model = transformer()
    texts = ["sun", "moon star rain wind", "", "snow tree"]
    with cut_at_layer(model, layer, "mean") as part:
        vectors = encode(part, texts, batch_size=batch_size, convert_to_tensor=True)
    for text, vector in zip(texts, vectors, strict=True):  # one text at a time, without padding
        features = model.preprocess([text])
        inputs = {key: features[key] for key in ("input_ids", "attention_mask")}
        with torch.no_grad():
            states = model[0].model(**inputs, output_hidden_states=True).hidden_states
        torch.testing.assert_close(
            vector, states[-1 if layer is None else layer][0].mean(dim=0), atol=1e-5, rtol=1e-5
        )


def test_the_models_own_modules_after_a_layer_and_the_model_is_left_as_it_was() -> None:
    model = transformer()
    first = model[0]
    expected = model.encode(["sun"])
    config = first.model.config.to_dict()
    unpads = first.unpad_inputs
    model.train()
    with cut_at_layer(model, 1, "model") as part:
        np.testing.assert_allclose(encode(part, ["sun"]), expected, atol=1e-6)
    assert first.model.config.to_dict() == config
    assert first.unpad_inputs == unpads
    assert model.training
    with cut_at_layer(model, None) as part:
        assert part is model
    for without_layer, layer in ((model, 2), (model, -1), (static(), 1)):
        with (
            pytest.raises(ValueError, match=f"layer={layer}"),
            cut_at_layer(without_layer, layer, "model"),
        ):
            pass


# Maps by language

LANGUAGES = ["en", "fr", "ru", "zh", "to"]  # "to" is also a method of torch's containers
TEXTS = ["sun moon", "star rain wind", "snow", "tree leaf root fish", "bird wolf"]
LAYER = CalibrationLayer(32, LANGUAGES, pivot="fr")
LAYER.offset.copy_(torch.arange(5.0)[:, None].expand(5, 32))


@pytest.fixture(scope="module")
def mapped(model, tmp_path_factory) -> SentenceTransformer:
    folder = str(tmp_path_factory.mktemp("model"))
    export(model, LAYER).save_pretrained(folder)
    return SentenceTransformer(folder, device="cpu", local_files_only=True)


def test_every_role_and_language_is_prompt_and_map_together_and_prompts_that_are_given_stay(
    model, mapped
) -> None:
    roles: dict[Any, str] = {None: "", "query": "sun moon: ", "document": "a star "}
    for (role, prompt), code in product(roles.items(), LANGUAGES):
        expected = LAYER.transform(model.encode(TEXTS, prompt=prompt), code)
        np.testing.assert_allclose(encode(mapped, TEXTS, code, role=role), expected, atol=1e-5)
    for options in ({"prompt": "a star "}, {"prompt_name": "document"}):
        by_option = mapped.encode(TEXTS, task="ru", **options)
        np.testing.assert_allclose(
            encode(mapped, TEXTS, "ru", role="query", **options), by_option, atol=1e-6
        )
    assert encode(mapped, TEXTS[0], "fr").shape == (32,)


def test_lists_of_languages_are_grouped_and_keep_their_order(mapped) -> None:
    codes = ["rus", "fr-CA", "zh-Hans", "ru", "en"]
    tasks = zip(TEXTS, ["ru", "fr", "zh", "ru", "en"], strict=True)
    expected = np.stack([mapped.encode(text, task=task) for text, task in tasks])
    np.testing.assert_allclose(encode(mapped, TEXTS, codes), expected, atol=1e-5)
    tensor = encode(mapped, TEXTS, codes, convert_to_tensor=True, truncate_dim=4)
    torch.testing.assert_close(tensor, torch.from_numpy(expected[:, :4]), atol=1e-5, rtol=1e-5)
    of_tensors = encode(mapped, TEXTS, codes, convert_to_numpy=False)
    np.testing.assert_allclose(torch.stack(of_tensors), expected, atol=1e-5)


def test_texts_without_a_language_take_the_default_and_languages_without_a_map_are_refused(
    mapped,
) -> None:
    with pytest.warns(UserWarning, match="no language"):
        plain = encode(mapped, TEXTS, ["en", None, "", "und", None], role="query")
    np.testing.assert_allclose(
        plain, encode(mapped, TEXTS, ["en", *["fr"] * 4], role="query"), atol=1e-6
    )
    np.testing.assert_allclose(plain[1:], mapped.encode_query(TEXTS[1:]), atol=1e-6)
    for code in ("sw", "zh-TW", "english"):
        with pytest.raises(ValueError, match=code):
            encode(mapped, TEXTS, ["en", *[code] * 4])
    with pytest.raises(ValueError, match="5 texts and 2 languages"):
        encode(mapped, TEXTS, ["en", "fr"])


def test_a_model_without_maps_is_called_as_it_is(model) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_allclose(
            encode(model, TEXTS, ["sw"] * 5, role="query"), model.encode_query(TEXTS)
        )
        np.testing.assert_allclose(encode(model, TEXTS, "en"), model.encode(TEXTS))
    assert encoding.task_languages(model) == {}


def test_queries_may_have_maps_of_their_own() -> None:
    base = static()
    documents = CalibrationLayer(8, ["en", "fr"], pivot="en")
    queries = CalibrationLayer(8, ["en", "fr"], pivot="en")
    queries.offset[1] += 3
    mapped = export(base, documents, query_calibration=queries)
    assert encoding.task_languages(mapped) == {
        "en": "en",
        "fr": "fr",
        "query_en": "en",
        "query_fr": "fr",
    }
    codes = ["fra", "en", "fr", "en", "en"]
    unmapped = base.encode(TEXTS)
    moved = encode(mapped, TEXTS, codes, role="query") - unmapped
    np.testing.assert_allclose(moved[:, 0], [3, 0, 3, 0, 0], atol=1e-5)
    of_documents = encode(mapped, TEXTS, codes, role="document")
    np.testing.assert_allclose(of_documents, unmapped, atol=1e-5)


# Prompts

SHIPPED: dict[str, tuple[dict[str, str], str | None, str, str, str]] = {
    # prompts, default prompt -> before queries, before documents, before other texts
    "none": ({}, None, "", "", ""),
    "E5": ({"query": "query: ", "passage": "passage: "}, None, "query: ", "passage: ", ""),
    "E5, default": (
        {"query": "query: ", "passage": "passage: "},
        "query",
        "query: ",
        "passage: ",
        "query: ",
    ),
    "BGE": ({"query": "BGE: "}, None, "BGE: ", "", ""),
    "BGE, default": ({"query": "BGE: "}, "query", "BGE: ", "", "BGE: "),
    "Qwen": ({"query": "Instruct: a\nQuery:", "document": ""}, None, "Instruct: a\nQuery:", "", ""),
    "Nomic": (
        {"query": "q: ", "passage": "d: ", "Classification": "classification: "},
        None,
        "q: ",
        "d: ",
        "",
    ),
    "corpus": ({"query": "q: ", "corpus": "c: "}, None, "q: ", "c: ", ""),
    "all names": ({"document": "d: ", "passage": "p: ", "corpus": "c: "}, None, "", "d: ", ""),
    "one for all": ({"text": "text: "}, "text", "text: ", "text: ", "text: "),
}


@pytest.mark.parametrize("reloaded", [False, True])
@pytest.mark.parametrize("name", SHIPPED)
def test_prompts_as_models_ship_them(name, reloaded, tmp_path) -> None:
    prompts, default, *expected = SHIPPED[name]
    model = SentenceTransformer(
        modules=list(static()), prompts=prompts, default_prompt_name=default, device="cpu"
    )
    if reloaded:
        model.save_pretrained(str(tmp_path))
        model = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
        assert "document" in model.prompts
    assert [role_prompt(model, role) for role in ("query", "document", None)] == expected
    names = [encoding.prompt_name(model, role) for role in ("query", "document", None)]
    assert [model.prompts[each] if each else "" for each in names] == expected
    assert encoding.embeds_roles_apart(model) == (expected[0] != expected[1])


def test_a_prompt_that_is_given_is_a_text_or_a_name_and_routes_embed_roles_apart() -> None:
    model = SentenceTransformer(
        modules=list(static()), prompts={"query": "q: ", "sts": "s: "}, device="cpu"
    )
    assert role_prompt(model, "document", "sts") == "s: " and role_prompt(model, "query", "") == ""
    assert role_prompt(model, "document", "passage: ") == "passage: "
    assert not encoding.embeds_roles_apart(model, "text: ", "text: ")
    with pytest.raises(ValueError, match="retrieval.*query, sts"):
        role_prompt(model, "query", "retrieval")
    with pytest.raises(KeyError, match="passage"):
        role_prompt(model, "passage")
    model = with_two_encoders(static())
    assert role_prompt(model, "query") == role_prompt(
        model, "document"
    ) == "" and encoding.embeds_roles_apart(model)


# Vectors on the disk

ROWS = np.random.default_rng(0).standard_normal((23, 5)).astype(np.float32)
HALVES = ROWS.astype(np.float16)


def kept_in(folder, embedded: list, stop_after: int = 99) -> KeptVectors:
    def embed(rows: slice) -> np.ndarray:
        if len(embedded) >= stop_after:
            raise KeyboardInterrupt
        embedded.append(rows)
        return ROWS[rows]

    return KeptVectors(folder, shard_size=5).write(ROWS, embed)


def test_kept_vectors_are_float16_by_slices_and_shards(tmp_path) -> None:
    kept = kept_in(tmp_path, [])
    assert kept.shape == (23, 5) and len(kept) == 23 and len(list(tmp_path.glob("*.npy"))) == 5
    for rows in (slice(None), slice(3, 17), slice(5, 10), slice(22, 99)):
        assert np.array_equal(kept[rows], HALVES[rows])
    shards = list(kept)
    assert np.array_equal(np.concatenate(shards), HALVES)
    assert {type(shard) for shard in shards} == {np.memmap}


def test_missing_and_damaged_shards_are_embedded_again_and_no_others(tmp_path) -> None:
    with pytest.raises(KeyboardInterrupt):
        kept_in(tmp_path, [], stop_after=2)
    for embedded_again in (3, 0):
        again: list[slice] = []
        assert np.array_equal(kept_in(tmp_path, again)[:], HALVES) and len(again) == embedded_again
    shard = tmp_path / "000001.npy"
    content = shard.read_bytes()
    for damaged in (content[:-40], content[:130] + bytes([content[130] ^ 1]) + content[131:]):
        shard.write_bytes(damaged)
        again = []
        assert np.array_equal(kept_in(tmp_path, again)[:], HALVES) and again == [slice(5, 10)]


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e6])
def test_vectors_that_float16_cannot_hold_name_their_row_and_leave_no_shard(
    tmp_path, broken
) -> None:
    rows = ROWS.copy()
    rows[12, 2] = broken
    with pytest.raises(ValueError, match="row 12"):
        KeptVectors(tmp_path, shard_size=5).write(rows, rows.__getitem__)
    assert len(list(tmp_path.glob("*.npy"))) == 2


def test_the_fingerprint_is_that_of_weights_maps_and_lengths(tmp_path) -> None:
    model = transformer()
    before = encoding.fingerprint(model)
    model.encode(["sun", "moon star"])
    model.save_pretrained(str(tmp_path))
    loaded = SentenceTransformer(str(tmp_path), device="cpu", local_files_only=True)
    assert encoding.fingerprint(loaded) == before
    calibration = CalibrationLayer(model.get_embedding_dimension(), ["en", "fr"], pivot="en")
    with_maps = encoding.fingerprint(export(model, calibration))
    in_bf16 = encoding.fingerprint(model.to(torch.bfloat16))
    model.max_seq_length = 7
    shorter = encoding.fingerprint(model)
    assert len({before, with_maps, in_bf16, shorter}) == 4


def add_to_vocabulary(model: SentenceTransformer) -> None:
    model.tokenizer.add_tokens(["sun moon"])


def lower_letters(model: SentenceTransformer) -> None:
    model.tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()


def pad_left(model: SentenceTransformer) -> None:
    model.tokenizer.padding_side = "left"


def change_activation(model: SentenceTransformer) -> None:
    model[0].auto_model.config.hidden_act = "relu"


@pytest.mark.parametrize("change", [add_to_vocabulary, lower_letters, pad_left, change_activation])
def test_another_tokenizer_or_configuration_has_another_fingerprint(change: Any) -> None:
    model = transformer()
    before = encoding.fingerprint(model)
    model.encode(["sun"])
    assert encoding.fingerprint(model) == before
    change(model)
    assert encoding.fingerprint(model) != before


def test_a_mapping_is_no_list_of_texts() -> None:
    with pytest.raises(TypeError, match="not a dict"):
        encode(transformer(), {"text": "sun"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("prompts", "default", "said"),
    [
        ({"query": "q: ", "document": "", "passage": "p: "}, None, ["document"]),
        ({"query": "q: ", "passage": "p: "}, None, []),
        ({"query": "", "document": "", "other": "o: "}, "other", ["query", "document"]),
        ({}, None, []),
    ],
)
def test_a_prompt_that_the_hosts_call_leaves_out_is_said(
    prompts: dict, default: str | None, said: list, caplog: pytest.LogCaptureFixture
) -> None:
    model = transformer()
    model.prompts = prompts
    model.default_prompt_name = default
    encoding.warn_of_other_prompts(model, ["query", "document"])
    assert [record.args[0] for record in caplog.records] == said
    for role in {"query", "document"} - set(said):
        call = getattr(model, f"encode_{role}")
        np.testing.assert_allclose(encode(model, "sun", role=role), call("sun"), atol=1e-6)
