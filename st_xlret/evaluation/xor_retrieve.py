"""XOR-Retrieve: questions in seven languages, answers in English passages."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray
from tqdm.auto import tqdm

from st_xlret.evaluation.readers.xor_retrieve import (
    XorFiles,
    XorRetrieveData,
    find_in_directory,
    find_on_hub,
    load_xor_retrieve,
)
from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
from st_xlret.evaluation.retrieval.evaluator import RetrievalEvaluator
from st_xlret.evaluation.retrieval.ranking import DocumentEncoder, encode_in_memory, retrieve
from st_xlret.evaluation.token_budget import (
    TokenizedPassage,
    WordTokenizer,
    first_tokens,
    warn_unless_official,
    word_tokenizer,
)

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

BUDGETS = {"recall_at_2kt": 2_000, "recall_at_5kt": 5_000}
_FIRST_DEPTH = 128


class XORRetrieveEvaluator(RetrievalEvaluator):
    """R@2kt and R@5kt of XOR-Retrieve, per question language and averaged over the languages.

    The benchmark is by Asai et al. (2021), [arXiv:2010.11856](https://arxiv.org/abs/2010.11856), and reported by CCP
    (Table 4) and MSM (Tables 3 and 10). The texts of the best passages, tokenised by `nltk.word_tokenize`, are
    concatenated and cut after 2 000 and 5 000 tokens. A question is a hit if one of its answers is a case-sensitive
    substring of these tokens joined by spaces. The answers "yes" and "no" are not spans of a text; they are left out,
    and so are questions without another answer. As many passages are retrieved as fill the larger budget. A passage is
    encoded as title and text, and its text alone is searched for answers.

    The official corpus has 18 million passages: use `embed_corpus=EmbeddingCache(folder)`. Counting tokens needs NLTK
    (the extra `eval`).

    Metrics: `average_recall_at_5kt` (primary, as on the leaderboard), `average_recall_at_2kt`, and both
    per language, `ja_recall_at_2kt`.

    Args:
        data: Passages, questions and answers, or a function that loads them.
        tokenizer: How tokens are counted, which the result says. Default: that of `word_tokenizer`.
        **options: Those of `RetrievalEvaluator`.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> model = SentenceTransformer(modules=[BoW(vocab=["tokyo", "talo"])], device="cpu")
        >>> passages = TextCollection(["1", "2"], ["The capital is Tokyo", "Born in 1905"], "en", ["Japan", "Talo"])
        >>> data = XorRetrieveData(passages, TextCollection(["q"], ["talo?"], "fi"), [["1905"]])
        >>> XORRetrieveEvaluator(data)(model)["xor-retrieve_fi_recall_at_2kt"]
        1.0
    """

    benchmark = "xor-retrieve"
    metrics = tuple(BUDGETS)
    task = "an answer among the first 2 000 and 5 000 tokens of the best English passages (XOR-Retrieve)"
    direction = "question in seven languages to English passages"

    def __init__(
        self,
        data: XorRetrieveData | Callable[[], XorRetrieveData],
        *,
        tokenizer: WordTokenizer | None = None,
        **options: Any,
    ) -> None:
        load = (lambda: data) if isinstance(data, XorRetrieveData) else data
        super().__init__({"english": cast(Callable[[], RetrievalData], load)}, **{"split": "dev", **options})
        self.tokenizer = tokenizer or word_tokenizer()
        self.primary_metric = "average_recall_at_5kt"

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: str = "dev",
        passages: str | os.PathLike[str] | None = None,
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> XORRetrieveEvaluator:
        """Read the official files.

        The questions are in `xor_<split>_retrieve_eng_span*.jsonl`, with `{"id", "question", "lang", "answers"}` per
        line (the released test file has no answers). The passages are DPR's `psgs_w100.tsv` with the columns id, text
        and title, by default the one file `*w100*.tsv` of the folder. All files may be gzipped.

        Args:
            path: The folder.
            languages: Languages of the questions, as ISO 639-1 codes. Default: all in the file.
            split: `"dev"`, `"test"` or `"train"`.
            passages: The file of the passages, if it is elsewhere.
            cache_dir: Folder for the passages as memory-mapped columns. Default: `st_xlret` in the cache of Hugging
                Face Datasets.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If a file is missing. The message says which was expected where.
        """
        return cls._from_files(find_in_directory(path, split, passages), languages, split, cache_dir, options)

    @classmethod
    def from_hub(
        cls,
        repository: str,
        languages: Sequence[str] | None = None,
        *,
        split: str = "dev",
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> XORRetrieveEvaluator:
        """Load the official files from a dataset repository on the Hub, or from its cache when offline.

        The authors publish the files on their own site. Datasets on the Hub that were made from them keep only one
        answer per question, with which R@2kt would be too low: name a repository with the files themselves.

        Args:
            repository: Such as `"my-group/xor-retrieve"`.
            languages: As for `from_directory`.
            split: As for `from_directory`.
            cache_dir: As for `from_directory`.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If the repository lacks one of the files.
            OSError: If the Hub cannot be reached and the repository is not in its cache.
        """
        return cls._from_files(find_on_hub(repository, split), languages, split, cache_dir, options)

    @classmethod
    def _from_files(
        cls, files: XorFiles, languages: Sequence[str] | None, split: str, cache_dir: Any, options: dict[str, Any]
    ) -> XORRetrieveEvaluator:
        bar = bool(options.get("show_progress_bar", False))
        load = partial(load_xor_retrieve, files, languages, cache_dir=cache_dir, show_progress_bar=bar)
        return cls(load, split=split, **options)

    def score_pool(
        self, model: SentenceTransformer, data: RetrievalData, pool_name: str
    ) -> dict[str, dict[str, float]]:
        """Question language to metric to value."""
        xor = cast(XorRetrieveData, data)
        warn_unless_official(self.tokenizer)
        embeddings: list[Any] = []

        def embed_once(corpus: TextCollection, encode: DocumentEncoder) -> Any:
            if not embeddings:
                embeddings.append((self.corpus_embedding(pool_name) or encode_in_memory)(corpus, encode))
            return embeddings[0]

        tokenized: dict[int, TokenizedPassage] = {}
        depth = _FIRST_DEPTH
        while True:
            rows = retrieve(
                model,
                xor.judged,
                xor.corpus,
                k=depth,
                embedder=self.embedder,
                similarity=self.similarity,
                embed_corpus=embed_once,
            ).rows
            self._tokenize(xor.corpus, rows, tokenized)
            if depth >= len(xor.corpus) or self._is_filled(rows, tokenized):
                return self._score(xor, rows, tokenized)
            depth *= 2  # the passages are short: retrieve more of them

    def score_rows(self, xor: XorRetrieveData, rows: NDArray[np.int64]) -> dict[str, dict[str, float]]:
        """R@2kt and R@5kt per language of given results: the corpus rows of each judged question, best first."""
        tokenized: dict[int, TokenizedPassage] = {}
        self._tokenize(xor.corpus, rows, tokenized)
        return self._score(xor, rows, tokenized)

    def _tokenize(self, corpus: TextCollection, rows: NDArray[np.int64], known: dict[int, TokenizedPassage]) -> None:
        """Tokenise the retrieved passages, each once, as far as the budgets reach."""
        bar = tqdm(rows, desc="Tokenising", unit=" questions", disable=not self.show_progress_bar)
        for ranked in bar:
            left = max(BUDGETS.values())
            for row in ranked.tolist():
                if left <= 0:
                    break
                if row not in known:
                    known[row] = TokenizedPassage.of(self.tokenizer.tokenize(corpus.texts[row]))
                left -= known[row].tokens

    @staticmethod
    def _is_filled(rows: NDArray[np.int64], tokenized: dict[int, TokenizedPassage]) -> bool:
        def tokens(ranked: NDArray[np.int64]) -> int:
            return sum(tokenized[row].tokens for row in ranked.tolist() if row in tokenized)

        return all(tokens(ranked) >= max(BUDGETS.values()) for ranked in rows)

    @staticmethod
    def _score(
        xor: XorRetrieveData, rows: NDArray[np.int64], tokenized: dict[int, TokenizedPassage]
    ) -> dict[str, dict[str, float]]:
        hits: dict[str, list[list[bool]]] = {}
        for number, (ranked, answers) in enumerate(zip(rows, xor.judged_answers, strict=True)):
            passages = [tokenized[row] for row in ranked.tolist() if row in tokenized]
            found = [first_tokens(passages, budget) for budget in BUDGETS.values()]
            of_question = [any(answer in text for answer in answers) for text in found]
            hits.setdefault(xor.judged.language_of(number), []).append(of_question)
        means = {language: np.mean(of_language, axis=0) for language, of_language in hits.items()}
        return {language: dict(zip(BUDGETS, map(float, mean), strict=True)) for language, mean in means.items()}

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        return {
            **super()._protocol(model),
            "passage": "title and text are encoded, the text is searched for answers",
            "tokens": self.tokenizer.description,
            "answers": 'case-sensitive substrings of the tokens joined by spaces; "yes" and "no" left out',
            "average": "mean over the question languages",
        }
