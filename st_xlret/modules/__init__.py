"""Building blocks: projection heads, memory bank, document encoder, calibration maps, encoders from scratch."""

from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.encoders import (
    first_last_encoder,
    freeze_unused,
    static_encoder,
    train_tokenizer,
    transformer_encoder,
    with_two_encoders,
)
from st_xlret.modules.heads import (
    AsymmetricBNHead,
    ContextualEncoder,
    DocumentEncoder,
    ProjectionHead,
)
from st_xlret.modules.language_memory_bank import LanguageMemoryBank

__all__ = [
    "AsymmetricBNHead",
    "CalibrationLayer",
    "ContextualEncoder",
    "DocumentEncoder",
    "LanguageMemoryBank",
    "ProjectionHead",
    "first_last_encoder",
    "freeze_unused",
    "static_encoder",
    "train_tokenizer",
    "transformer_encoder",
    "with_two_encoders",
]
