"""Mr.TyDi: retrieval of Wikipedia passages in the language of the question, in 11 languages."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from st_xlret.data.retrieval.json_lines import MR_TYDI_LANGUAGES
from st_xlret.evaluation.readers.mr_tydi import find_in_directory, find_on_hub, load_mr_tydi
from st_xlret.evaluation.retrieval.evaluator import RetrievalEvaluator

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class MrTyDiEvaluator(RetrievalEvaluator):
    """MRR@100 and Recall@100 on Mr.TyDi v1.1, per language and averaged over the languages.

    The benchmark is by Zhang et al. (2021), [arXiv:2108.08787](https://arxiv.org/abs/2108.08787), and reported by CCP,
    MSM and the paper of the language contrastive loss. Each of the 11 languages has its own Wikipedia as the pool, from
    137 000 passages in Swahili to 33 million in English. Every question with a judgement counts, whether its passage is
    found or not. A passage is encoded as title and text with the document prompt of the model, a question with the
    query prompt, if the model has prompts.

    The large languages need a cache of the embeddings: `embed_corpus=EmbeddingCache(folder)`. The passages themselves
    are memory-mapped from the data cache, one language at a time.

    Metrics: `average_mrr_at_100` (primary), `average_recall_at_100`, and both per language,
    `sw_mrr_at_100`.

    The arguments are those of `RetrievalEvaluator`; each pool is a language.

    Example:
        >>> from sentence_transformers import SentenceTransformer
        >>> from sentence_transformers.sentence_transformer.modules import BoW
        >>> from st_xlret.evaluation.retrieval.data import RetrievalData, TextCollection
        >>> model = SentenceTransformer(modules=[BoW(vocab=["mji", "mto"])], device="cpu")
        >>> passages = TextCollection(["1#0", "1#1"], ["ni mji", "ni mto"], "sw", titles=["Dodoma", "Ruaha"])
        >>> questions = TextCollection(["1"], ["mto gani"], "sw")
        >>> data = RetrievalData(passages, questions, {"1": {"1#1": 1}})
        >>> MrTyDiEvaluator({"sw": data})(model)["mrtydi_sw_mrr_at_100"]
        1.0
    """

    benchmark = "mrtydi"
    metrics = ("mrr_at_100", "recall_at_100")
    task = "retrieval of passages that answer a question, in its language (Mr.TyDi v1.1)"
    direction = "question to passages in the same language"

    @classmethod
    def from_directory(
        cls,
        path: str | os.PathLike[str],
        languages: Sequence[str] | None = None,
        *,
        split: str = "test",
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> MrTyDiEvaluator:
        """Read the folders `mrtydi-v1.1-<language>` of the official release or of the Hub.

        The release has `collection/docs.jsonl.gz`, `topic.<split>.tsv` and `qrels.<split>.txt` in each;
        the Hub's `castorini/mr-tydi-corpus` has `corpus.jsonl.gz`, and its `castorini/mr-tydi` has
        `ir-format-data/topics.<split>.txt` and `ir-format-data/qrels.<split>.txt`, or
        `<split>.jsonl.gz`. The two repositories of the Hub may be merged into one folder or be side by side in it.

        Args:
            path: The folder that holds them.
            languages: ISO 639-1 codes (`sw`) or names (`swahili`). Default: all there.
            split: `"test"`, `"dev"` or `"train"`.
            cache_dir: Folder for the passages as memory-mapped columns. Default: `st_xlret` in the cache of Hugging
                Face Datasets.
            **options: The evaluator's own.

        Raises:
            FileNotFoundError: If a file is missing. The message says which was expected where.
            ValueError: If a language is not one of Mr.TyDi's.
        """
        files = find_in_directory(path, languages, split)
        return cls._from_files(files, split, cache_dir, options)

    @classmethod
    def from_hub(
        cls,
        languages: Sequence[str] | None = None,
        *,
        split: str = "test",
        cache_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> MrTyDiEvaluator:
        """Load `castorini/mr-tydi` and `castorini/mr-tydi-corpus` from the Hub, or from its cache when offline.

        The arguments are those of `from_directory`. By default all 11 languages are loaded.

        Raises:
            OSError: If the Hub cannot be reached and the files are not in its cache.
            ValueError: If a language is not one of Mr.TyDi's.
        """
        return cls._from_files(find_on_hub(languages, split), split, cache_dir, options)

    @classmethod
    def _from_files(cls, files: Any, split: str, cache_dir: Any, options: dict[str, Any]) -> MrTyDiEvaluator:
        show_progress_bar = bool(options.get("show_progress_bar", False))
        pools = {
            language: partial(
                load_mr_tydi, of_language, language, cache_dir=cache_dir, show_progress_bar=show_progress_bar
            )
            for language, of_language in files.items()
        }
        return cls(pools, split=split, **options)

    def _protocol(self, model: SentenceTransformer | None = None) -> dict[str, str]:
        average = f"mean over the languages evaluated; the papers' is over all {len(MR_TYDI_LANGUAGES)}"
        return {**super()._protocol(model), "passage": "title and text", "average": average}
