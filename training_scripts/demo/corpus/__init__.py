"""A generated corpus in six languages and four scripts, for demonstrations and tests.

Stories about everyday topics are planned as language-independent meanings (who does what to what, where,
when, why) and said in English, French, German, Russian, Arabic or Chinese. Training documents of different
languages tell different stories; parallel sentences say one meaning in several languages; test meanings never
occur in training. About 480 content words and 43 sentence patterns give more than a hundred million meanings.
"""

from __future__ import annotations

from training_scripts.demo.corpus.concepts import TOY_LANGUAGES
from training_scripts.demo.corpus.corpus import ToyCorpus, toy_corpus, write_toy_corpus
from training_scripts.demo.corpus.generate import generate_documents, generate_pairs, generate_test_set

__all__ = [
    "TOY_LANGUAGES",
    "ToyCorpus",
    "generate_documents",
    "generate_pairs",
    "generate_test_set",
    "toy_corpus",
    "write_toy_corpus",
]
