"""Models of transformers beyond the sixteen families of `torch_families`, and how they are used.

Adapters, frozen parts, padding, packed rows, caches, preferences; each is a step as in
`torch_operators`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from tests.oracles.torch_habits import BATCH, HABITS, LENGTH, WORDS, Called, ids
from tests.oracles.torch_operators import Step

_TEXT: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GROUPED = _TEXT | {"num_key_value_heads": 2}


def _padding(where: slice) -> torch.Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, where] = 0
    return mask


def _of_library(
    model: str,
    config: str,
    given: dict[str, torch.Tensor] | None = None,
    change: Callable[[nn.Module], Any] | None = None,
    call: dict[str, Any] | None = None,
    **fields: Any,
) -> Step:
    import transformers as hf

    module = getattr(hf, model)(getattr(hf, config)(**fields))
    if change:
        change(module)
    if given is None:
        words = ids()
        given = {"input_ids": words, "labels": words.clone()}
    more = call or {}
    return Called(lambda m, **kw: m.net(**kw, **more).loss, net=module), given


def _llama(given: dict[str, torch.Tensor] | None = None, **more: Any) -> Step:
    fields = _GROUPED | more.pop("fields", {})
    return _of_library(
        "LlamaForCausalLM",
        "LlamaConfig",
        _labelled(given),
        call={"use_cache": False},
        **fields,
        **more,
    )


def _labelled(given: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
    given = dict(given or {})
    words = given.setdefault("input_ids", ids())
    given.setdefault("labels", words.clone())
    return given


class _Adapter(nn.Module):
    """A frozen layer and a trained update of low rank."""

    def __init__(self, base: nn.Linear, rank: int = 4) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + 2.0 * self.up(self.down(x))


def _adapted(module: nn.Module) -> None:
    module.requires_grad_(False)
    wanted = [
        (m, n, c)
        for m in module.modules()
        for n, c in m.named_children()
        if isinstance(c, nn.Linear) and n in ("q_proj", "v_proj")
    ]
    for owner, name, layer in wanted:
        setattr(owner, name, _Adapter(layer))


def _frozen_below(module: nn.Module) -> None:
    module.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    module.model.layers[0].requires_grad_(False)  # type: ignore[union-attr, index]


def _speech() -> Step:
    import transformers as hf

    config = hf.Wav2Vec2Config(
        vocab_size=32,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=96,
        conv_dim=(32, 32),
        conv_stride=(5, 4),
        conv_kernel=(10, 8),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=16,
        num_conv_pos_embedding_groups=4,
        mask_time_prob=0.0,
        layerdrop=0.0,
        pad_token_id=0,
        ctc_loss_reduction="mean",
    )
    return Called(lambda m, **kw: m.net(**kw).loss, net=hf.Wav2Vec2ForCTC(config)), {
        "input_values": torch.randn(2, 4000),
        "labels": torch.randint(1, 32, (2, 20)),
    }


def _images(**more: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.tensor([1, 2])} | more


def _cached_prefix() -> Step:
    """A prefix is read once without gradients; its cache is copied for the text to come."""
    import transformers as hf

    net = hf.LlamaForCausalLM(hf.LlamaConfig(**_GROUPED))

    def run(m: Any, prefix: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            cache = m.net(input_ids=prefix, use_cache=True).past_key_values
        kept = copy.deepcopy(cache)
        return m.net(input_ids=ids, labels=ids, past_key_values=kept).loss

    return Called(run, net=net), {"prefix": ids(64), "ids": ids(192)}


def _preferences() -> Step:
    """A model against a frozen copy of it: chosen and rejected answers in one batch."""
    import transformers as hf

    net = hf.GPT2LMHeadModel(
        hf.GPT2Config(vocab_size=WORDS, n_positions=512, n_embd=64, n_layer=2, n_head=4)
    )

    def told(model: Any, ids: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1)
        return logits.gather(2, ids[:, 1:, None]).squeeze(2).sum(1)

    def run(m: Any, ids: torch.Tensor) -> torch.Tensor:
        mine = told(m.net, ids)
        with torch.no_grad():
            theirs = told(m.old, ids)
        gain = (mine - theirs).chunk(2)
        return -F.logsigmoid(0.1 * (gain[0] - gain[1])).mean()

    return Called(run, net=net, old=copy.deepcopy(net).requires_grad_(False)), {"ids": ids()}


_KV: dict[str, Any] = {"call": {"use_cache": False}}
LIBRARY: Mapping[str, Callable[[], Step]] = {
    "llama, adapters": lambda: _llama(change=_adapted),
    "llama, frozen below": lambda: _llama(change=_frozen_below),
    "llama, tied": lambda: _llama(fields={"tie_word_embeddings": True}),
    "llama, left padding": lambda: _llama({"attention_mask": _padding(slice(0, 100))}),
    "llama, right padding": lambda: _llama({"attention_mask": _padding(slice(156, None))}),
    "llama, positions": lambda: _llama({"position_ids": torch.arange(LENGTH).expand(2, LENGTH)}),
    "llama, packed": lambda: _llama(
        {
            "position_ids": torch.cat([torch.arange(100), torch.arange(LENGTH - 100)])
            .expand(2, LENGTH)
            .contiguous()
        }
    ),
    "llama, bool mask": lambda: _llama({"attention_mask": torch.ones(2, LENGTH, dtype=torch.bool)}),
    "llama, 4d mask": lambda: _llama(
        {"attention_mask": torch.ones(2, 1, LENGTH, LENGTH, dtype=torch.bool).tril()}
    ),
    "llama, labels ignored": lambda: _llama(
        {"labels": torch.where(torch.arange(LENGTH) < 100, -100, ids())}
    ),
    "llama, a cached prefix": _cached_prefix,
    "preferences": _preferences,
    "gemma2": lambda: _of_library(
        "Gemma2ForCausalLM", "Gemma2Config", **_KV, **_GROUPED, head_dim=16
    ),
    "gemma3": lambda: _of_library(
        "Gemma3ForCausalLM", "Gemma3TextConfig", **_KV, **_GROUPED, head_dim=16, sliding_window=128
    ),
    "qwen3": lambda: _of_library("Qwen3ForCausalLM", "Qwen3Config", **_KV, **_GROUPED, head_dim=16),
    "qwen2 moe": lambda: _of_library(
        "Qwen2MoeForCausalLM",
        "Qwen2MoeConfig",
        **_KV,
        **_GROUPED,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=32,
        shared_expert_intermediate_size=32,
    ),
    "phi3": lambda: _of_library("Phi3ForCausalLM", "Phi3Config", **_KV, **_GROUPED),
    "mistral, window": lambda: _of_library(
        "MistralForCausalLM", "MistralConfig", **_KV, **_GROUPED, sliding_window=64
    ),
    "modernbert": lambda: _of_library(
        "ModernBertForMaskedLM",
        "ModernBertConfig",
        **(_TEXT | {"cls_token_id": 1, "sep_token_id": 2, "global_attn_every_n_layers": 2}),
    ),
    "deberta": lambda: _of_library(
        "DebertaV2ForMaskedLM",
        "DebertaV2Config",
        **_TEXT,
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=32,
    ),
    "xlnet": lambda: _of_library(
        "XLNetLMHeadModel",
        "XLNetConfig",
        vocab_size=WORDS,
        d_model=64,
        n_layer=2,
        n_head=4,
        d_inner=96,
    ),
    "electra": lambda: _of_library(
        "ElectraForMaskedLM", "ElectraConfig", **_TEXT, embedding_size=32
    ),
    "albert": lambda: _of_library("AlbertForMaskedLM", "AlbertConfig", **_TEXT, embedding_size=32),
    "bloom": lambda: _of_library(
        "BloomForCausalLM",
        "BloomConfig",
        **_KV,
        vocab_size=WORDS,
        hidden_size=64,
        n_layer=2,
        n_head=4,
    ),
    "neox": lambda: _of_library("GPTNeoXForCausalLM", "GPTNeoXConfig", **_KV, **_TEXT),
    "falcon": lambda: _of_library(
        "FalconForCausalLM",
        "FalconConfig",
        **_KV,
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    ),
    "mamba": lambda: _of_library(
        "MambaForCausalLM",
        "MambaConfig",
        _labelled({"input_ids": ids(48)}),
        **_KV,
        vocab_size=WORDS,
        hidden_size=64,
        num_hidden_layers=2,
        state_size=8,
    ),
    "olmo2": lambda: _of_library("Olmo2ForCausalLM", "Olmo2Config", **_KV, **_GROUPED),
    "longformer": lambda: _of_library(
        "LongformerForMaskedLM", "LongformerConfig", **_TEXT, attention_window=32
    ),
    "swin": lambda: _of_library(
        "SwinForImageClassification",
        "SwinConfig",
        _images(),
        image_size=64,
        patch_size=4,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        num_labels=10,
    ),
    "convnext": lambda: _of_library(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        _images(),
        num_channels=3,
        hidden_sizes=[16, 32],
        depths=[2, 2],
        num_stages=2,
        num_labels=10,
    ),
    "segformer": lambda: _of_library(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.randint(0, 5, (2, 64, 64))},
        num_labels=5,
        hidden_sizes=[16, 16, 32, 32],
        decoder_hidden_size=32,
        num_attention_heads=[1, 2, 2, 4],
        depths=[1, 1, 1, 1],
    ),
    "speech, ctc": _speech,
}


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """All, each from the same seed."""
    for name, make in (HABITS | LIBRARY).items():
        yield name, lambda make=make: _seeded(make)


def _seeded(make: Callable[[], Step]) -> Step:
    torch.manual_seed(0)
    module, kwargs = make()
    return module.train(), kwargs
