"""Options of a run of the masked sentence model or of one of its rivals."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class MSMOptions:
    """What is trained, and how; the defaults are the paper's where it says."""

    objective: str = field(
        default="msm",
        metadata={
            "help": "What is learned of documents: msm (predict each sentence from the others), crop (two spans of a "
            "document), ict (a sentence and its context), ccp (neighbouring sentences), mlm (masked words alone).",
            "choices": ["msm", "crop", "ict", "ccp", "mlm"],
        },
    )
    pooling: str = field(
        default="cls",
        metadata={
            "help": "Sentence vector of a Transformer: cls (the paper's) or mean (learns faster from scratch).",
            "choices": ["cls", "mean"],
        },
    )
    mlm: str = field(
        default="alternate",
        metadata={
            "help": "Masked language modelling: in batches of its own, by random choice (alternate), on the sentences "
            "of each MSM batch (sum), or none. A static encoder has none.",
            "choices": ["alternate", "sum", "none"],
        },
    )
    objective_weight: float = field(
        default=1.0, metadata={"help": "How often a batch is of the objective, relative to the other tasks."}
    )
    mlm_weight: float = field(
        default=1.0, metadata={"help": "How often a batch is of masked language modelling, where they alternate."}
    )
    pairs_weight: float = field(
        default=1.0, metadata={"help": "How often a batch holds parallel sentences, where --pairs are given."}
    )
    mask_probability: float = field(default=0.15, metadata={"help": "Share of tokens that MLM predicts."})
    pairs_temperature: float = field(default=0.05, metadata={"help": "Temperature of the loss on parallel sentences."})

    block_sentences: int = field(
        default=32, metadata={"help": "Sentences of a document that are read together; longer documents are split."}
    )
    batch_by: str = field(
        default="sentences",
        metadata={
            "help": "sentences: a batch has as many documents as fill --batch-size times --block-sentences sentences. "
            "documents: it has --batch-size documents, however short.",
            "choices": ["sentences", "documents"],
        },
    )
    single_sentences: str = field(
        default="skip",
        metadata={
            "help": "Documents of one sentence: left out and counted (skip), or negatives of others (negatives).",
            "choices": ["skip", "negatives"],
        },
    )
    pack_tokens: int = field(
        default=0,
        metadata={
            "help": "Pack consecutive sentences into units of up to so many tokens, as the authors' program does with "
            "64; 0: each sentence is a unit."
        },
    )
    alpha: float = field(
        default=0.3,
        metadata={"help": "Languages are sampled by size to the power of alpha; XLM-R's 0.3, 1 as they are, 0 alike."},
    )

    document_layers: int = field(default=2, metadata={"help": "Layers of the document encoder (Table 8)."})
    document_encoder: str = field(
        default="shared",
        metadata={
            "help": "One document encoder for all languages, or one for --separate-languages and one for the others "
            "(Sep Doc), or that with projection heads for each (Sep Doc + Head, Table 4).",
            "choices": ["shared", "separate", "separate-with-heads"],
        },
    )
    separate_languages: list[str] = field(
        default_factory=lambda: ["en"], metadata={"help": "Languages with the other document encoder, if separate."}
    )
    projection: str = field(
        default="separate",
        metadata={
            "help": "Projection heads of predictions and sentences: separate, one shared, or none (Table 7).",
            "choices": ["separate", "shared", "none"],
        },
    )
    mu: float = field(
        default=0.5, metadata={"help": "How much of the bias is taken off intra-document negatives; 0: none (Table 5)."}
    )
    cross_document_only: bool = field(
        default=False, metadata={"help": "Take no sentence of the same document as a negative (Table 5)."}
    )
    negatives: int = field(
        default=512,
        metadata={"help": "Cross-document negatives of a sentence, at most (Table 6); 0: all of the batch."},
    )
    temperature: float = field(default=0.1, metadata={"help": "Temperature of MSM and of CCP."})
    cross_language_negatives: bool = field(
        default=False, metadata={"help": "MSM, CCP: sentences of other languages are negatives too, on several GPUs."}
    )
    mini_batch_size: int = field(
        default=128,
        metadata={
            "help": "MSM: sentences that a Transformer reads at a time, with gradient caching: fewer need less memory "
            "and give the same gradients; 0: the batch in one pass. A static encoder always takes one pass."
        },
    )

    span_sentences: int = field(default=10, metadata={"help": "CROP, ICT: sentences that both texts are taken from."})
    span_temperature: float = field(default=0.05, metadata={"help": "CROP, ICT: temperature."})
    crop_tokens: int = field(default=256, metadata={"help": "CROP: tokens of a document that both spans lie in."})
    crop_shortest: float = field(default=0.05, metadata={"help": "CROP: least length of a span, as a share of them."})
    crop_longest: float = field(default=0.5, metadata={"help": "CROP: largest length of a span, as a share of them."})
    ict_keep: float = field(default=0.1, metadata={"help": "ICT: how often the context keeps the sentence."})
    window: int = field(default=5, metadata={"help": "CCP: largest distance of two sentences that belong together."})
    bank_size: int = field(default=32768, metadata={"help": "CCP: keys of earlier batches as further negatives."})

    def __post_init__(self) -> None:
        if self.mlm == "sum" and self.objective != "msm":
            raise ValueError(f"--mlm sum goes with --objective msm alone, got {self.objective}: use --mlm alternate")
        if self.document_encoder != "shared" and not self.separate_languages:
            raise ValueError(f"--document-encoder {self.document_encoder} needs --separate-languages")
        for name in ("block_sentences", "span_sentences"):
            if getattr(self, name) < 2:
                raise ValueError(f"--{name.replace('_', '-')} must be at least 2, got {getattr(self, name)}")
        for name in ("pack_tokens", "negatives", "mini_batch_size", "bank_size"):
            if getattr(self, name) < 0:
                raise ValueError(f"--{name.replace('_', '-')} must not be negative, got {getattr(self, name)}")
