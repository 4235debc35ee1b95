"""A generated corpus in six languages and four scripts, for demonstrations and tests.

Stories about everyday topics are planned as language-independent meanings (who does what to what, where, when, why)
and expressed in English, French, German, Russian, Arabic or Chinese. Training documents of different languages tell
different stories, parallel sentences express one meaning in several languages, and test meanings never occur in
training. About 480 content words and 43 sentence patterns give more than a hundred million meanings.

The words, patterns and topics are in `tables/`. `lexicon` reads them, `morphology` (with `russian` and `arabic`)
inflects the words, `stories` plans meanings, `realise` turns them into sentences, and `generate` draws the corpus.
"""

from __future__ import annotations

from training_scripts.demo.corpus.generate import (
    ToyCorpus,
    generate_documents,
    generate_pairs,
    generate_test_set,
    toy_corpus,
    write_toy_corpus,
)
from training_scripts.demo.corpus.lexicon import TOY_LANGUAGES

__all__ = [
    "TOY_LANGUAGES",
    "ToyCorpus",
    "generate_documents",
    "generate_pairs",
    "generate_test_set",
    "toy_corpus",
    "write_toy_corpus",
]
