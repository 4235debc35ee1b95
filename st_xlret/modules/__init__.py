"""Building blocks: projection heads, memory bank, document encoder, calibration maps, encoders from scratch."""

from __future__ import annotations

from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.document_encoder import DocumentEncoder
from st_xlret.modules.from_scratch import static_encoder, train_tokenizer, transformer_encoder
from st_xlret.modules.heads import AsymmetricBNHead, ProjectionHead
from st_xlret.modules.language_memory_bank import BankKeys, LanguageMemoryBank
from st_xlret.modules.ml_ctl import ContextualEncoder, first_last_encoder
from st_xlret.modules.two_encoders import freeze_unused, with_two_encoders

__all__ = [
    "AsymmetricBNHead",
    "BankKeys",
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
