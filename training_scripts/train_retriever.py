r"""Fine-tune an encoder for retrieval, on questions with passages in one language or many.

A question is to find its passage among those of the batch (Karpukhin et al., EMNLP 2020). This is
the second stage of the papers, after pre-training by CCP or MSM. On Natural Questions as MSM does
it (appendix A.1), on 8 GPUs:

    torchrun --nproc-per-node 8 training_scripts/train_retriever.py \
        training_scripts/recipes/retriever-nq.yaml --per_device_train_batch_size 16 \
        --model runs/msm/model --retrieval nq.jsonl --output_dir runs/nq

The negatives are the other passages of the batch, those of the other devices too, and with
--hard_negatives some of each question's own. A passage that answers two questions of a batch is a
negative of neither.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from st_xlret import CrossLingualTrainer, RetrievalContrastiveLoss
from st_xlret.batches import Rows
from st_xlret.modules import with_two_encoders
from st_xlret.options import option, parse
from st_xlret.training.arguments import ScriptArguments
from st_xlret.training.encoders import EncoderArguments
from st_xlret.training.questions import QuestionOptions, questions_score
from st_xlret.training.run import Run, run_script
from st_xlret.training.texts import text_and_language_columns


@dataclass
class RetrieverArguments:
    """The method."""

    _argument_group_name = "method"

    temperature: float = option(
        0.05, "Divisor of similarities. DPR, which the papers follow, has 1 with dot."
    )
    similarity: str = option(
        "cosine", "Of vectors, also in the finished model; DPR: dot.", choices=["cosine", "dot"]
    )
    mini_batch_num_tokens: int = option(
        0, "Tokens to embed at a time, by gradient caching; 0: all."
    )
    language_smoothing: float = option(
        1.0, "Languages are sampled by size to this power; 1: each question once."
    )
    language_mixing: float = option(
        1.0, "1: a batch mixes the languages, as DPR's program does; 0: it is of one."
    )
    two_encoders: bool = option(
        False, "Train an encoder of questions and another of passages, as DPR does."
    )


@dataclass
class TrainingArguments(ScriptArguments):
    """The host's training arguments with defaults for fine-tuning."""

    max_steps: int = option(-1, "Optimizer steps. By default whole epochs (--num_train_epochs).")
    num_train_epochs: float = option(3.0, "Passes over the questions.")
    learning_rate: float = option(
        2e-5, "Peak learning rate. 2e-5 suits XLM-R, 5e-4 a small Transformer from scratch."
    )


def main(arguments: list[str] | None = None) -> dict[str, Any]:
    """Train as the command line says; returns the content of results.json."""
    groups = [EncoderArguments, QuestionOptions, RetrieverArguments, TrainingArguments]
    encoder, data, method, args = parse(groups, arguments, description=__doc__)
    run = Run(args, encoder, data, method)

    # 1. Data: questions with passages, some of which are held out, and hard negatives.
    questions, evaluator = data.questions_and_evaluator(
        encoder.model, args, languages=data.languages
    )

    # 2. The encoder, or two of them, which start alike.
    model = encoder.load_encoder(text_and_language_columns(questions=questions), args)
    if method.two_encoders:
        model = with_two_encoders(model)
    model.similarity_fn_name = method.similarity

    # 3. The contrastive loss over the passages of all devices.
    loss = RetrievalContrastiveLoss(
        model,
        temperature=method.temperature,
        similarity=method.similarity,  # type: ignore[arg-type]
        mini_batch_num_tokens=method.mini_batch_num_tokens or None,
        batches=Rows(method.language_smoothing, method.language_mixing),
    )

    # 4. Train, measure and save.
    args.keep_best_checkpoint(questions_score(method.similarity) if evaluator else None)
    trainer = CrossLingualTrainer(model, args, questions, loss=loss, evaluator=evaluator)
    languages = Counter(questions["language"])
    entries = {"questions": len(questions), "languages": dict(languages.most_common())}
    return run.train_and_save(
        trainer, entries, evaluators=[evaluator], test=data.lareqa_evaluator(), tag="retrieval"
    )


if __name__ == "__main__":
    run_script(main)
