"""Building blocks: projection head, memory bank, calibration maps."""

from __future__ import annotations

from st_xlret.modules.asymmetric_bn_head import AsymmetricBNHead
from st_xlret.modules.calibration_layer import CalibrationLayer
from st_xlret.modules.contextual_encoder import ContextualEncoder
from st_xlret.modules.document_encoder import DocumentEncoder
from st_xlret.modules.first_last import first_last_encoder
from st_xlret.modules.from_scratch import static_encoder, train_tokenizer, transformer_encoder
from st_xlret.modules.language_memory_bank import BankKeys, LanguageMemoryBank
from st_xlret.modules.projection import ProjectionHead

__all__ = [
    "AsymmetricBNHead",
    "BankKeys",
    "CalibrationLayer",
    "ContextualEncoder",
    "DocumentEncoder",
    "LanguageMemoryBank",
    "ProjectionHead",
    "first_last_encoder",
    "static_encoder",
    "train_tokenizer",
    "transformer_encoder",
]
