"""The rows of the study of search: what each is trained by, from which weights, on which data and batches."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from training_scripts.studies.common import DOCUMENTS, PAIRS, TATOEBA_LANGUAGES, folders_in

LANGUAGES = ["en", "ar", "de", "el", "es", "hi", "ru", "th", "tr", "vi", "zh"]
"""Languages of the documents, which are those of XQuAD-R."""
SEARCH, IR, ML_CTL = "train_search_ablation", "train_ir_ablation", "train_ml_ctl"
CCP, MSM, RIVAL = "train_ccp_ablation", "train_msm_ablation", "train_rival"
# Without tensorflow_docs and ebible, which would be most of the pairs of the languages that they have.
FEW_PAIRS = [name for name in PAIRS if not name.startswith("tensorflow")]
# Without the documents that the held-out translations are from.
OTHER_DOCUMENTS = [name for name in DOCUMENTS if not name.startswith("tico19")]


@dataclass(frozen=True)
class Row:
    """How the model of a row is made: by training, or as a sum of what other rows learned.

    Attributes:
        program: The program that trains it; empty for the checkpoint and for merged rows.
        options: The options that make the row what it is.
        pairs_per_language: Translations of each language. By default those of the study.
        start: The row whose model it starts from. By default the checkpoint.
        merged: Rows with the share of each one's change of the weights, which are added to the checkpoint.
        searched: Whether its documents are those that are searched in the test.
        rate_of: A related row whose learning rate it takes. By default its own is tuned.
    """

    program: str = ""
    options: str = ""
    pairs_per_language: int | None = None
    start: str | None = None
    merged: dict[str, float] = field(default_factory=dict)
    searched: bool = False
    rate_of: str | None = None

    @property
    def needs(self) -> set[str]:
        """The rows whose models it is made of."""
        return {*self.merged, *([self.start] if self.start else [])}

    @property
    def has_documents_alone(self) -> bool:
        """Whether it is trained without translations and questions."""
        return self.program in (CCP, MSM, RIVAL)


SIMILARITIES = "--questions_ratio 0"
QUESTIONS_AND_SIMILARITIES = "--questions_ratio 0.3"
ROWS = {
    "checkpoint": Row(),
    "translations: MSELoss": Row(SEARCH, "--objective vectors --questions_ratio 0"),
    "translations: InfoNCE": Row(SEARCH, "--contrastive_ratio 1 --questions_ratio 0"),
    "translations: similarities": Row(SEARCH, SIMILARITIES),
    "translations: similarities, 500 a language": Row(SEARCH, SIMILARITIES, pairs_per_language=500),
    "ML-CTL, CZ-NCE of sentences": Row(ML_CTL, "--mode CZ-snt --mlm_weight 0"),
    "ML-CTL, CZ-NCE of sentences, the encoder's own pooling": Row(
        ML_CTL, "--mode CZ-snt --mlm_weight 0 --pooling checkpoint", rate_of="ML-CTL, CZ-NCE of sentences"
    ),
    "ML-CTL, CZ-NCE with words": Row(ML_CTL, "--mode ML-CTL-CZ --mlm_weight 0", rate_of="ML-CTL, CZ-NCE of sentences"),
    "English questions": Row(SEARCH, "--questions_ratio 1"),
    "questions, similarities": Row(SEARCH, QUESTIONS_AND_SIMILARITIES),
    "questions, similarities and InfoNCE": Row(
        SEARCH, f"--contrastive_ratio 0.3333 {QUESTIONS_AND_SIMILARITIES}", rate_of="questions, similarities"
    ),
    "questions, semantic loss": Row(IR, "--semantic_weight 1 --language_weight 0"),
    # train_search.py trains without dropout, the other programs with the checkpoint's own, unless they are told.
    "questions, semantic loss, no dropout": Row(
        IR, "--dropout 0 --semantic_weight 1 --language_weight 0", rate_of="questions, semantic loss"
    ),
    "questions, semantic and language loss (0.001)": Row(IR, "--semantic_weight 1 --language_weight 0.001"),
    "questions, semantic and language loss (1)": Row(IR, "--semantic_weight 1 --language_weight 1"),
    # At the paper's scale its gradient is thousands of times smaller than that of the semantic loss.
    "questions, semantic and language loss (300)": Row(
        IR, "--semantic_weight 1 --language_weight 300", rate_of="questions, semantic loss"
    ),
    "questions, semantic and language loss (300), other languages": Row(
        IR,
        "--semantic_weight 1 --language_weight 300 --others_without_parallel --no_parallel ru sw th hi",
        rate_of="questions, semantic loss",
    ),
    "CCP": Row(CCP),
    "CCP, usual BN": Row(CCP, "--normalization batch"),
    "CCP, no BN": Row(CCP, "--normalization none"),
    "CCP, no bank": Row(CCP, "--bank_size 0"),
    "CCP, no bank, no BN": Row(CCP, "--bank_size 0 --normalization none", rate_of="CCP, no bank"),
    "CCP, temperature 0.02": Row(CCP, "--temperature 0.02"),
    "CCP, negatives of all languages": Row(CCP, "--cross_language_negatives --language_mixing 1"),
    "CCP, no dropout": Row(CCP, "--dropout 0", rate_of="CCP"),
    "CCP on the searched documents": Row(CCP, searched=True),
    "MSM": Row(MSM),
    "MSM, no bias": Row(MSM, "--mu 0", rate_of="MSM"),
    "MSM, no projection": Row(MSM, "--projection none", rate_of="MSM"),
    "MSM, no dropout in the encoder": Row(MSM, "--dropout 0", rate_of="MSM"),
    "ICT": Row(RIVAL, "--objective ict"),
    "CROP of mContriever": Row(RIVAL, "--objective contriever", rate_of="ICT"),
    "MLM, a new head": Row(RIVAL, "--objective mlm --fresh_head", rate_of="MSM"),
    "0.3 of CCP": Row(merged={"CCP": 0.3}),
    "0.5 of CCP": Row(merged={"CCP": 0.5}),
    "0.3 of CCP on the searched documents": Row(merged={"CCP on the searched documents": 0.3}),
    "0.5 of ICT": Row(merged={"ICT": 0.5}),
    "0.7 of translations: similarities": Row(merged={"translations: similarities": 0.7}),
    "0.7 of questions, similarities": Row(merged={"questions, similarities": 0.7}),
    "0.7 of questions, similarities; 0.3 of CCP": Row(merged={"questions, similarities": 0.7, "CCP": 0.3}),
    "CCP, then similarities, 500 a language": Row(SEARCH, SIMILARITIES, pairs_per_language=500, start="CCP"),
    "0.3 of CCP, then similarities, 500 a language": Row(
        SEARCH, SIMILARITIES, pairs_per_language=500, start="0.3 of CCP"
    ),
    "MSM, then similarities, 500 a language": Row(SEARCH, SIMILARITIES, pairs_per_language=500, start="MSM"),
    "0.3 of CCP, then similarities": Row(SEARCH, SIMILARITIES, start="0.3 of CCP"),
    "0.3 of CCP, then questions, similarities": Row(SEARCH, QUESTIONS_AND_SIMILARITIES, start="0.3 of CCP"),
}


def with_needed(rows: Iterable[str]) -> list[str]:
    """These rows and all that they are made of, in the order of the study."""
    wanted, more = set(), set(rows)
    while more:
        wanted |= more
        more = {name for row in more for name in ROWS[row].needs} - wanted
    return [name for name in ROWS if name in wanted]


def tuned_for(rows: Iterable[str]) -> list[str]:
    """The rows whose learning rates these rows take, in the order of the study."""
    wanted = {ROWS[row].rate_of or row for row in rows if ROWS[row].program}
    return [name for name in ROWS if name in wanted]


def data_options(
    row: Row, data: Path, *, texts: int, pairs_per_language: int, excluded: Path, teacher: Path
) -> list[str]:
    """The data that a row is trained on, and its batches, which have `texts` texts in every row.

    Args:
        row: A row that is trained.
        data: Folder of the data.
        texts: Texts in a batch.
        pairs_per_language: Translations of each language, unless the row has a number of its own.
        excluded: File of the English sentences that are not trained on.
        teacher: Folder of the teacher's vectors.
    """
    pairs = ["--pairs", *folders_in(data, FEW_PAIRS), "--languages", "en", *TATOEBA_LANGUAGES]
    pairs += ["--pairs_per_language", str(row.pairs_per_language or pairs_per_language), "--exclude", str(excluded)]
    # Never the dev part: it holds the English text of XQuAD-R.
    questions = ["--retrieval", str(data / "squad_v1.1/train")]
    documents = ["--documents", *([str(data / "xquad_r")] if row.searched else folders_in(data, OTHER_DOCUMENTS))]
    size = "--per_device_train_batch_size"
    if row.program == SEARCH:
        given = [*pairs, *([] if row.options.endswith("--questions_ratio 0") else questions), size, str(texts)]
        given += ["--keep_trained", "1", "--teacher_cache", str(teacher)]
        return [*given, "--train_seq_length", "160", "--evaluation_pairs", "20"]
    if row.program == ML_CTL:
        # Sentences with words that are in both translations are 1.4 times as long, and each has several samples.
        rows = texts // (4 if "ML-CTL" in row.options else 2)
        given = [*pairs, size, str(rows), "--evaluation_pairs", "20"]
        words = sorted(map(str, (data / "dictionaries").glob("enwiktionary.*"))) if "ML-CTL" in row.options else []
        return [*given, "--dictionaries", *words, "--stop_words", "none"] if words else given
    if row.program == IR:
        given = [*pairs, *questions, "--positives", "sentence", "--evaluation_pairs", "20"]
        given += ["--max_seq_length", "160"]
        if row.options.endswith("--language_weight 0"):
            return [*given, size, str(texts // 4), "--pairs_batch_size", str(texts // 4)]
        # Questions with answers, pairs for one loss, and pairs and as many other sentences for the other one.
        given += [*documents, size, str(texts // 4), "--pairs_batch_size", str(texts // 10)]
        return [*given, "--others_batch_size", str(texts // 10)]
    # A window of CCP has two texts, a block of MSM 16; its rivals read as much text as MSM. Sentences of documents are
    # longer than translations: cut to 64 tokens, a batch has about as many tokens. ICT and CROP take long texts.
    length = "256" if "ict" in row.options or "contriever" in row.options else "64"
    blocks = [] if row.program == CCP else ["--block_sentences", "16"]
    masked = ["--mlm_ratio", "1" if "mlm" in row.options else "0"]
    given = [*documents, "--languages", *LANGUAGES, *blocks, "--train_seq_length", length, *masked]
    return [*given, size, str(max(1, texts // (2 if row.program == CCP else 16)))]
