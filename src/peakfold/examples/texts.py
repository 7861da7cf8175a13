"""Transformers: BERT-base with its language head, GPT-2 small, and a decoder with experts."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from peakfold.frontends.torch.module import Example

_IGNORED = -100
"""The label of a token that is not predicted."""


class Attention(nn.Module):
    """Self-attention by torch's own function.

    Args:
        width: of a token.
        heads: that share it.
        causal: a token sees those before it only.
        drop: of the attention's weights.
    """

    def __init__(self, width: int, heads: int, *, causal: bool, drop: float) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.causal, self.drop = heads, causal, drop

    def forward(self, x: Tensor) -> Tensor:
        """From and to [batch, tokens, width]."""
        batch, tokens, width = x.shape
        parts = self.qkv(x).view(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        drop = self.drop if self.training else 0.0
        mixed = functional.scaled_dot_product_attention(
            q, k, v, dropout_p=drop, is_causal=self.causal
        )
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, tokens, width))
        return out


def feed_forward(width: int, inner: int) -> nn.Module:
    """Two layers with a GELU between them."""
    return nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))


class Experts(nn.Module):
    """Each expert takes the tokens that score it highest, a fixed number of them.

    So no size depends on values ("expert choice"); with two experts a token on average.
    """

    def __init__(self, width: int, inner: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(feed_forward(width, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """From and to [batch, tokens, width]."""
        tokens = x.flatten(0, 1)
        scores = self.gate(tokens).softmax(-1)
        each = max(1, 2 * len(tokens) // len(self.experts))
        out = torch.zeros_like(tokens)
        for at, expert in enumerate(self.experts):
            weight, picked = scores[:, at].topk(each)
            out = out.index_add(0, picked, expert(tokens[picked]) * weight[:, None])
        return out.view(x.shape)


class Block(nn.Module):
    """Attention and a feed-forward part, each with a residual.

    Args:
        attention: of tokens.
        feed: made of the width.
        width: of a token.
        before: norms come before each part, as in GPT-2; else after each sum, as in BERT.
        drop: of what each part adds.
    """

    def __init__(
        self, attention: nn.Module, feed: nn.Module, width: int, *, before: bool, drop: float
    ) -> None:
        super().__init__()
        self.attention, self.feed, self.drop = attention, feed, nn.Dropout(drop)
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.before = before

    def forward(self, x: Tensor) -> Tensor:
        """From and to [batch, tokens, width]."""
        for norm, part in zip(self.norms, (self.attention, self.feed), strict=True):
            x = x + self.drop(part(norm(x))) if self.before else norm(x + self.drop(part(x)))
        return x


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    return functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=_IGNORED)


class MaskedLanguageModel(nn.Module):
    """BERT with its language head, whose decoder is tied to the embedding of words."""

    def __init__(self, words: int, width: int, layers: int, heads: int, most: int = 512) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.kinds, self.norm = nn.Embedding(2, width), nn.LayerNorm(width)
        self.drop = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(
            Block(
                Attention(width, heads, causal=False, drop=0.1),
                feed_forward(width, 4 * width),
                width,
                before=False,
                drop=0.1,
            )
            for _ in range(layers)
        )
        self.head = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.words.weight

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Logits [batch, tokens, words], and the loss where there are labels."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        kinds = self.kinds(torch.zeros_like(input_ids))
        x = self.drop(self.norm(self.words(input_ids) + kinds + self.places(places)))
        for block in self.blocks:
            x = block(x)
        logits = self.decoder(self.head(x))
        return (
            {"logits": logits}
            if labels is None
            else {
                "loss": _loss(logits, labels),
                "logits": logits,
            }
        )


class Decoder(nn.Module):
    """GPT-2: learned places, norms before each part, the head tied to the embedding of words."""

    def __init__(
        self,
        words: int,
        width: int,
        layers: int,
        heads: int,
        most: int = 1024,
        feed: Callable[[int], nn.Module] | None = None,
    ) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(most, width)
        self.drop, self.norm = nn.Dropout(0.1), nn.LayerNorm(width)
        self.blocks = nn.ModuleList(
            Block(
                Attention(width, heads, causal=True, drop=0.1),
                feed_forward(width, 4 * width) if feed is None else feed(width),
                width,
                before=True,
                drop=0.1,
            )
            for _ in range(layers)
        )
        self.head = nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, input_ids: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Logits [batch, tokens, words]; with labels the loss, each token predicts the next."""
        places = torch.arange(input_ids.shape[1], device=input_ids.device)
        x = self.drop(self.words(input_ids) + self.places(places))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if labels is None:
            return {"logits": logits}
        following = functional.pad(labels[:, 1:], (0, 1), value=_IGNORED)
        return {"loss": _loss(logits, following), "logits": logits}


def _example(model: nn.Module, batch: int, tokens: int) -> Example:
    ids = torch.zeros(batch, tokens, dtype=torch.long)
    named = {0: "batch", 1: "sequence"}
    return Example(
        model.train(),
        (),
        {"input_ids": ids, "labels": ids.clone()},
        dynamic={"input_ids": named, "labels": named},
    )


def bert(
    words: int = 30522,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    batch: int = 32,
    tokens: int = 512,
) -> Example:
    """BERT-base, pre-training by masked words: 109.5 M parameters, 32 x 512 tokens.

    Example:
        >>> example = bert(words=100, width=16, layers=1, heads=2, batch=2, tokens=8)
        >>> sorted(example.module(**example.kwargs))
        ['logits', 'loss']
    """
    return _example(MaskedLanguageModel(words, width, layers, heads), batch, tokens)


def gpt2(
    words: int = 50257,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    batch: int = 8,
    tokens: int = 1024,
) -> Example:
    """GPT-2 small: 124.4 M parameters, 8 x 1024 tokens."""
    return _example(Decoder(words, width, layers, heads), batch, tokens)


def moe(
    words: int = 50257,
    width: int = 768,
    layers: int = 12,
    heads: int = 12,
    experts: int = 8,
    batch: int = 8,
    tokens: int = 1024,
) -> Example:
    """GPT-2's shape with eight experts in each layer: 521.2 M parameters."""
    made = Decoder(
        words, width, layers, heads, feed=lambda inner: Experts(inner, 4 * inner, experts)
    )
    return _example(made, batch, tokens)
