"""Building blocks: heads, memory bank, document encoder, calibration maps, new encoders."""

from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.contextual_encoder import ContextualEncoder
from st_xlret.modules.document_encoder import DocumentEncoder
from st_xlret.modules.encoders import (
    first_last_encoder,
    freeze_unused,
    static_encoder,
    transformer_encoder,
    with_two_encoders,
)
from st_xlret.modules.heads import AsymmetricBNHead, ProjectionHead
from st_xlret.modules.language_memory_bank import LanguageMemoryBank
from st_xlret.modules.tokenizer import train_tokenizer

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
