"""Contrastive losses: InfoNCE and its kin, in the shapes that the papers use."""

from collections.abc import Mapping
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from st_xlret.functional.tensors import (
    LOWEST,
    at_least_float32,
    check_integers_per_row,
    check_matrices,
    normalize_rows,
)

_MOST_LOGITS = 2**22  # that are held at a time (4 bytes each)
Tags = Mapping[str, "Tensor | None"]
Reduction = Literal["mean", "sum", "paper"]


def contrastive_context_loss(
    z: Tensor,
    window: Tensor,
    language: Tensor,
    *,
    temperature: float = 0.1,
    document: Tensor | None = None,
    queue: Tensor | None = None,
    queue_language: Tensor | None = None,
    queue_document: Tensor | None = None,
    cross_language_negatives: bool = False,
    text: Tensor | None = None,
    queue_text: Tensor | None = None,
    queue_is_normalized: bool = False,
    normalize: bool = True,
) -> Tensor:
    """Contrastive context prediction (CCP, Wu et al. 2022, Algorithm 1, lines 14-16).

    The loss is the mean over ordered positive pairs (c, i) of `-log(e^{s_ci} / sum_k e^{s_ck})`, where s is the cosine
    divided by `temperature` and k runs over all rows but c, and over all keys of the queue. Rows of one window are
    positives of each other. Rows and keys of another language than c's are left out of the sum, and those of c's
    document and text, where these are given; positives of c never are. A row without a positive is a negative only; a
    batch without any is a `ValueError`.

    Args:
        z: Projected sentence vectors, shape (B, d). They need not have unit length.
        window: Window id of each row, integers (B,).
        language: Language id of each row, integers (B,).
        temperature: Divisor of the cosines.
        document: Document id of each row, integers (B,).
        queue: Keys of earlier batches (Q, d), which get no gradient.
        queue_language: Language id of each key (Q,). Required with `queue`, unless `cross_language_negatives` is set.
        queue_document: Document id of each key (Q,). Required with `queue` if `document` is given.
        cross_language_negatives: Keep rows and keys of other languages, which teach the encoder to identify languages.
        text: Text id of each row, integers (B,).
        queue_text: Text id of each key (Q,). Required with `queue` if `text` is given.
        queue_is_normalized: Whether the keys already have unit length, which saves one pass over them.
        normalize: Whether s is the cosine; if off, the inner product (the ablation of Table 5).

    Example:
        >>> z = torch.eye(4).repeat_interleave(2, 0)            # four windows of two equal rows
        >>> window = torch.arange(4).repeat_interleave(2)
        >>> loss = contrastive_context_loss(z, window, torch.zeros(8, dtype=torch.long))
        >>> round(loss.item(), 6)                               # log(1 + 6 e^-10)
        0.000272
    """
    check_matrices(None, temperature, z=z, queue=queue)
    check_integers_per_row(len(z), window=window, language=language, document=document, text=text)
    tags = {
        "language": None if cross_language_negatives else language,
        "document": document,
        "text": text,
    }
    with torch.autocast(z.device.type, enabled=False):
        z = normalize_rows(z) if normalize else at_least_float32(z)
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        positives = (window[:, None] == window) & ~itself
        anchor, positive = positives.nonzero(as_tuple=True)
        if not len(anchor):
            raise ValueError("no positive pair in the batch: no two rows share a window id")
        logits = z @ z.T / temperature
        others = (_negative_mask(tags, tags, logits) | positives) & ~itself
        # The positive's own term never enters the sum, and log-sigmoid does the rest: in 16 bits, the difference of two
        # large numbers would have no gradient once the positive wins.
        others = others[anchor].scatter(1, positive[:, None], False)
        log_others = logits[anchor].masked_fill(~others, LOWEST).logsumexp(dim=1)
        if queue is not None and len(queue):
            key_tags = {"language": queue_language, "document": queue_document, "text": queue_text}
            needed = [f"queue_{name}" for name, tag in tags.items() if tag is not None]
            check_integers_per_row(
                len(queue), needed, **{f"queue_{name}": tag for name, tag in key_tags.items()}
            )
            keys = queue.detach().to(z)
            keys = keys if queue_is_normalized or not normalize else normalize_rows(keys)
            of_queue: Tensor = _LogSumExpOfKeys.apply(z / temperature, keys, tags, key_tags)
            log_others = torch.logaddexp(log_others, of_queue[anchor])
        return -F.logsigmoid(logits[anchor, positive] - log_others).mean()


def masked_sentence_loss(
    p: Tensor,
    h: Tensor,
    document: Tensor,
    *,
    mu: float = 0.5,
    temperature: float = 0.1,
    num_negatives: int | None = None,
    generator: torch.Generator | None = None,
    intra_document_negatives: bool = True,
    predicted: Tensor | None = None,
    language: Tensor | None = None,
    text: Tensor | None = None,
) -> Tensor:
    """Hierarchical contrastive loss for masked sentence prediction (MSM, Zhang et al. 2023, Eq. 1-2).

    The loss is the mean over rows t of
    `-log(e^{s_tt} / (e^{s_tt} + sum_j e^{s_tj - mu alpha_t} + sum_k e^{s_tk}))`, where s_tj is the cosine of p_t and
    h_j divided by `temperature`, j runs over the other sentences of t's document and k over those of other documents.
    The bias `alpha_t`, without a gradient, is the mean of the first kind of logits minus that of the second, and 0 if t
    has only one kind. A row without negatives contributes 0. Logits are computed in chunks, and again backwards.

    Args:
        p: Projected predictions of the masked sentences (S, d). They need not have unit length.
        h: Projected vectors of the sentences themselves (S, d).
        document: Document id of each row, integers (S,).
        mu: Fraction of the bias that is subtracted from the intra-document logits; 0 turns the bias off.
        temperature: Divisor of the cosines. Eq. 1 shows none; the authors' program has it.
        num_negatives: Number of cross-document negatives to draw for each row, without replacement; None for all.
        generator: Random generator for the draw, on the device of `p`. Default: torch's global generator.
        intra_document_negatives: Use the other sentences of t's document as negatives.
        predicted: Which rows to predict, boolean (S,). The others are negatives only. None for all rows.
        language: Language id of each row, integers (S,). Sentences of other languages are not negatives.
        text: Text id of each row, integers (S,). Sentences with t's own text are not negatives.

    Example:
        >>> h = torch.eye(4)                                    # two documents of two sentences
        >>> loss = masked_sentence_loss(h, h, torch.tensor([0, 0, 1, 1]))
        >>> round(loss.item(), 6)                               # log(1 + 3 e^-10)
        0.000136
    """
    check_matrices(len(p), temperature, p=p, h=h)
    check_integers_per_row(
        len(p), document=document, language=language, text=text, predicted=predicted
    )
    anchors = (
        torch.arange(len(p), device=p.device) if predicted is None else predicted.nonzero()[:, 0]
    )
    check_matrices(len(anchors), predicted=p[anchors])
    if mu < 0 or (num_negatives is not None and num_negatives < 1):
        raise ValueError(
            f"mu must be 0 or more, and num_negatives 1 or more, or None: got {mu} and {num_negatives}"
        )

    def draw_negatives(rows: Tensor) -> tuple[Tensor, Tensor]:
        """The negatives of some rows from their own documents, and those drawn from others, boolean (rows, S)."""
        others = rows[:, None] != torch.arange(len(h), device=h.device)
        if text is not None:
            others &= text[rows, None] != text
        same = document[rows, None] == document
        cross = others & ~same
        if language is not None:
            cross &= language[rows, None] == language
        if num_negatives is not None and int(cross.sum(1).max()) > num_negatives:
            # The largest of random numbers: a draw without replacement. Other rows get one below them all.
            draw = torch.rand(cross.shape, generator=generator, device=cross.device).masked_fill_(
                ~cross, -1.0
            )
            cross &= torch.zeros_like(cross).scatter_(
                1, draw.topk(num_negatives, dim=1).indices, True
            )
        return others & same & intra_document_negatives, cross

    def sum_of_row_losses(
        p: Tensor, h: Tensor, rows: Tensor, intra: Tensor, cross: Tensor
    ) -> Tensor:
        """The sum of the losses of some rows; their bias is a constant shift, so it has detached logits."""
        logits = p @ h.T
        of_intra, of_cross = (
            (logits.detach() * kind).sum(1) / kind.sum(1).clamp(min=1) for kind in (intra, cross)
        )
        alpha = (of_intra - of_cross) * (intra.any(1) & cross.any(1))
        shifted = logits - mu * alpha[:, None] * intra
        log_others = shifted.masked_fill(~(intra | cross), LOWEST).logsumexp(dim=1)
        return -F.logsigmoid(logits.gather(1, rows[:, None])[:, 0] - log_others).sum()

    with torch.autocast(p.device.type, enabled=False):
        p, h = normalize_rows(p[anchors]) / temperature, normalize_rows(h)
        total, size = p.new_zeros(()), max(1, _MOST_LOGITS // len(h))
        for part, rows in zip(p.split(size), anchors.split(size), strict=True):
            # The negatives are drawn outside of the checkpoint: inside, the backward pass would draw others.
            total = total + checkpoint(
                sum_of_row_losses, part, h, rows, *draw_negatives(rows), use_reentrant=False
            )
        return total / len(p)


def info_nce_loss(
    x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None
) -> Tensor:
    """Symmetric InfoNCE over the rows of both sides (ML-CTL, Eq. 1-2; L_sema of lang-contrastive, Eq. 2).

    The loss is the mean over the 2N anchors of `-log(e^{s+} / sum_k e^{s_k})`, where s is the cosine divided by
    `temperature` and k runs over the positive and the other 2(N - 1) rows of x and y. It is 0 for N = 1.

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_i is the positive of x_i.
        temperature: Divisor of the cosines.
        text: Text ids of the rows of x, then of y, integers (2N,). Rows of equal text are no negatives of each other.

    Example:
        >>> x = torch.eye(4)
        >>> round(info_nce_loss(x, x, temperature=0.1).item(), 6)
        0.000272
    """
    return -F.logsigmoid(-_log_ratios(x, y, temperature, text)).mean()


def cz_nce_loss(
    x: Tensor, y: Tensor, *, temperature: float = 0.07, text: Tensor | None = None
) -> Tensor:
    """Cross-zero noise contrastive estimation (ML-CTL, Chen et al. 2022: Eq. 5, averaged symmetrically as in Eq. 2).

    As `info_nce_loss`, but the positive is not part of the sum over k. The loss therefore becomes negative once the
    positive wins, and its gradient with respect to the positive stays 1 / temperature however far ahead that is. For
    each anchor, InfoNCE is the softplus of CZ-NCE. An anchor that has no negative left counts as 0.

    Example:
        >>> x = torch.eye(4)
        >>> round(cz_nce_loss(x, x, temperature=0.1).item(), 4)      # log(6) - 10
        -8.2082
    """
    log_ratios = _log_ratios(x, y, temperature, text, least_pairs=2)
    return log_ratios.masked_fill(log_ratios < LOWEST / 2, 0.0).mean()


def retrieval_contrastive_loss(
    queries: Tensor,
    passages: Tensor,
    *,
    temperature: float = 0.05,
    query_text: Tensor | None = None,
    passage_text: Tensor | None = None,
    normalize: bool = True,
) -> Tensor:
    """Retrieval loss L_IR: gold passages against all others (lang-contrastive, Hu et al. 2023, Eq. 1).

    The loss is the mean over queries of `-log(e^{s_ii} / sum_j e^{s_ij})`, where s is the cosine divided by
    `temperature` and j runs over all passages. Without negatives it is 0.

    Args:
        queries: Query vectors (N, d). They need not have unit length.
        passages: Passage vectors (P, d): the gold passages in the order of the queries, then hard negatives.
        temperature: Divisor of the cosines. 0.05 is the host's default `scale` of 20; Eq. 1 as printed has 1.
        query_text: Text id of each query, integers (N,). Gold passages of equal questions are no negatives.
        passage_text: Text id of each passage, integers (P,). Passages of the gold passage's text are no negatives.
        normalize: Whether s is the cosine; if off, the inner product, as in DPR.

    Example:
        >>> x = torch.eye(4)
        >>> round(retrieval_contrastive_loss(x, x, temperature=0.1).item(), 6)       # log(1 + 3 e^-10)
        0.000136
    """
    rows = len(queries)
    check_matrices(rows, temperature, queries=queries, gold_passages=passages[:rows])
    check_integers_per_row(rows, query_text=query_text)
    check_integers_per_row(len(passages), passage_text=passage_text)
    no_negative = torch.eye(rows, len(passages), dtype=torch.bool, device=queries.device)
    if query_text is not None:
        no_negative[:, :rows] |= query_text[:, None] == query_text
    if passage_text is not None:
        no_negative |= passage_text[:rows, None] == passage_text
    with torch.autocast(queries.device.type, enabled=False):
        queries, passages = (
            normalize_rows(x) if normalize else at_least_float32(x) for x in (queries, passages)
        )
        scores = (1 / temperature) * queries @ passages.T
        negatives = scores.masked_fill(no_negative, LOWEST).logsumexp(dim=1)
        return -F.logsigmoid(scores.diagonal() - negatives).mean()


def language_contrastive_loss(
    x: Tensor, y: Tensor, others: Tensor | None = None, *, reduction: Reduction = "mean"
) -> Tensor:
    """Language contrastive loss L_lang (lang-contrastive, Hu et al. 2023, Eq. 3).

    For each parallel pair (x_n, y_n) and every other row z_k of x, y and `others`, the loss has the term
    `softplus(d) + softplus(-d)` with `d = cos(x_n, z_k) - cos(y_n, z_k)`, which is least, 2 log 2, where z_k is equally
    similar to both sides. The differences are computed in chunks, and again in the backward pass.

    Args:
        x: Row-aligned vectors (N, d). They need not have unit length.
        y: Row-aligned vectors (N, d): y_n translates x_n.
        others: Further rows (M, d), which need no translations. They receive gradients too.
        reduction: "mean" over the N (R - 2) terms, "sum", or "paper": the sum divided by R (R - 2), as printed in
            Eq. 3, where R = 2N + M is the number of rows, at least 3.

    Example:
        >>> x = torch.eye(3)
        >>> round(language_contrastive_loss(x, x).item(), 4)          # 2 log 2
        1.3863
    """
    check_matrices(len(x), x=x, y=y)
    others = x[:0] if others is None else others
    pairs, rows = len(x), 2 * len(x) + len(others)
    divisor = {"mean": pairs * (rows - 2), "sum": 1, "paper": rows * (rows - 2)}.get(reduction)
    if divisor is None or rows < 3:
        needed = "a pair is compared with further rows, and reduction is 'mean', 'sum' or 'paper'"
        got = f"{pairs} pairs, {len(others)} others and {reduction!r}"
        raise ValueError(f"{needed}: got {got}; use a larger batch, or give others")

    def sum_of_terms(z: Tensor, chunk: Tensor) -> Tensor:
        d = (z[chunk] - z[chunk + pairs]) @ z.T
        terms = 2 * F.softplus(d) - d  # softplus(-d) = softplus(d) - d
        return terms.scatter(1, torch.stack([chunk, chunk + pairs], dim=1), 0.0).sum()

    with torch.autocast(x.device.type, enabled=False):
        z = normalize_rows(torch.cat([x, y, others.to(x.device)]))
        total = z.new_zeros(())
        for chunk in torch.arange(pairs, device=z.device).split(max(1, _MOST_LOGITS // rows)):
            total = total + checkpoint(sum_of_terms, z, chunk, use_reentrant=False)
        return total / divisor


def similarity_distillation_loss(
    student: Tensor,
    teacher: Tensor,
    bank: Tensor,
    *,
    temperature: float = 0.02,
    teacher_temperature: float | None = None,
    cosine_weight: float = 10.0,
) -> Tensor:
    """Make a student's vectors as similar to a bank of the teacher's vectors as the teacher's own vectors are.

    The loss is the mean over rows of `KL(p || q) + cosine_weight (1 - cos(student, teacher))`. Here p is the softmax
    over the bank of the teacher's cosines divided by a temperature, and q that of the student's cosines. The first
    term asks for the teacher's ranking of its neighbours (SEED, Fang et al., ICLR 2021, Eq. 4), the second one for the
    teacher's place (multilingual knowledge distillation, Reimers and Gurevych, EMNLP 2020, Eq. 1, on unit vectors).

    Args:
        student: Vectors of the texts by the encoder in training (N, d). They need not have unit length.
        teacher: Vectors by the teacher that the texts are to reach (N, d), without a gradient.
        bank: Vectors to compare with (K, d), of the teacher or of documents, without a gradient.
        temperature: Divisor of the cosines. The smaller it is, the more the nearest neighbours count.
        teacher_temperature: That of the teacher; a smaller one makes the student surer than it. Default: `temperature`.
        cosine_weight: Factor on the second term. 0 leaves it out.

    Example:
        >>> x = torch.eye(3)
        >>> round(similarity_distillation_loss(-x, x, x, temperature=1.0, cosine_weight=0.0).item(), 6)
        0.462784
    """
    teacher_temperature = temperature if teacher_temperature is None else teacher_temperature
    check_matrices(
        len(student), min(temperature, teacher_temperature), student=student, teacher=teacher
    )
    with torch.autocast(student.device.type, enabled=False):
        student, teacher, bank = (
            normalize_rows(x) for x in (student, teacher.detach(), bank.detach())
        )
        target = (teacher @ bank.T / teacher_temperature).log_softmax(dim=1)
        learnt = (student @ bank.T / temperature).log_softmax(dim=1)
        divergence = (target.exp() * (target - learnt)).sum(dim=1)
        return (divergence + cosine_weight * (1 - (student * teacher).sum(dim=1))).mean()


def _log_ratios(
    x: Tensor, y: Tensor, temperature: float, text: Tensor | None, least_pairs: int = 1
) -> Tensor:
    """`log(sum_k e^{s_k} / e^{s+})` over the negatives k of each of the 2N anchors, very low where there is none."""
    check_matrices(len(x), temperature, least_pairs, x=x, y=y)
    check_integers_per_row(2 * len(x), text=text)
    pair = torch.arange(len(x), device=x.device).repeat(2)
    left_out = pair[:, None] == pair
    if text is not None:
        left_out |= text[:, None] == text
    with torch.autocast(x.device.type, enabled=False):
        z = normalize_rows(torch.cat([x, y]))
        logits = z @ z.T / temperature
        positive = logits.diagonal(len(x)).repeat(2)
        return logits.masked_fill(left_out, LOWEST).logsumexp(dim=1) - positive


def _negative_mask(tags: Tags, other_tags: Tags, like: Tensor) -> Tensor:
    """Which columns may be negatives of which rows, boolean, of the shape of `like`: tags differ, but the language."""
    allowed = torch.ones(like.shape, dtype=torch.bool, device=like.device)
    for name, tag in tags.items():
        if tag is not None:
            equal = tag[:, None] == other_tags[name]
            allowed &= equal if name == "language" else ~equal
    return allowed


class _LogSumExpOfKeys(torch.autograd.Function):
    """Each row's logsumexp over its negatives among the keys, chunk by chunk.

    Its gradient, the mean of the keys weighted by their softmax, is made in the same pass: keys may be replaced later.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, keys: Tensor, tags: Tags, key_tags: Tags) -> Tensor:
        result, mean_key = z.new_full((len(z),), LOWEST), torch.zeros_like(z)
        size = max(1, _MOST_LOGITS // len(z))
        for part in (slice(start, start + size) for start in range(0, len(keys), size)):
            logits = z @ keys[part].T
            part_tags = {name: None if tag is None else tag[part] for name, tag in key_tags.items()}
            forbidden = _negative_mask(tags, part_tags, logits).logical_not_()
            logits.masked_fill_(forbidden, LOWEST)
            before, result = result, torch.logaddexp(result, logits.logsumexp(dim=1))
            weight = logits.sub_(result[:, None]).exp_().masked_fill_(forbidden, 0)
            mean_key.mul_((before - result).exp_()[:, None]).addmm_(weight, keys[part])
        ctx.save_for_backward(mean_key)
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return ctx.saved_tensors[0] * grad[:, None], None, None, None
