"""What people do with modules besides calling them: adapters, hooks, masks, caches, teachers.

And models of libraries beyond the sixteen families of `torch_families`. Each is a step as in
`torch_operators`: a module that returns its loss, and its keyword arguments, all tensors.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F
from torch.nn.utils import parametrizations, rnn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.oracles.torch_operators import Step

WORDS, LENGTH, BATCH, WIDTH = 200, 256, 2, 64
_TEXT: dict[str, Any] = {
    "vocab_size": WORDS, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "max_position_embeddings": 512, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_GROUPED = _TEXT | {"num_key_value_heads": 2}
Function = Callable[..., torch.Tensor]


def _ids(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, WORDS - 2, (BATCH, length))


def _padding(where: slice) -> torch.Tensor:
    mask = torch.ones(BATCH, LENGTH, dtype=torch.long)
    mask[1, where] = 0
    return mask


class Called(nn.Module):
    """Parts, and a function of them and the inputs that is the loss."""

    def __init__(self, function: Function, **parts: nn.Module) -> None:
        super().__init__()
        self.function = function
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, **kwargs: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return self.function(self, **kwargs)


def _mlp(depth: int = 3) -> nn.Sequential:
    layers = [m for _ in range(depth) for m in (nn.Linear(WIDTH, WIDTH), nn.GELU())]
    return nn.Sequential(*layers)


def _rows() -> torch.Tensor:
    return torch.rand(128, WIDTH)


def _loss(out: Any) -> torch.Tensor:
    return out.square().mean()


def _plain(change: Callable[[nn.Sequential], Any], **more: torch.Tensor) -> Step:
    """A small network that something was done to."""
    net = _mlp()
    change(net)
    return Called(lambda m, x: _loss(m.net(x)), net=net), {"x": _rows(), **more}


def _of_library(model: str, config: str, given: dict[str, torch.Tensor] | None = None,
                change: Callable[[nn.Module], Any] | None = None, call: dict[str, Any] | None = None,
                **fields: Any) -> Step:  # fmt: skip
    import transformers as hf

    module = getattr(hf, model)(getattr(hf, config)(**fields))
    if change:
        change(module)
    if given is None:
        ids = _ids()
        given = {"input_ids": ids, "labels": ids.clone()}
    more = call or {}
    return Called(lambda m, **kw: m.net(**kw, **more).loss, net=module), given


def _llama(given: dict[str, torch.Tensor] | None = None, **more: Any) -> Step:
    return _of_library("LlamaForCausalLM", "LlamaConfig", _labelled(given),
                       call={"use_cache": False}, **(_GROUPED | more.pop("fields", {})), **more)  # fmt: skip


def _labelled(given: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
    given = dict(given or {})
    ids = given.setdefault("input_ids", _ids())
    given.setdefault("labels", ids.clone())
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
    wanted = [(m, n, c) for m in module.modules() for n, c in m.named_children()
              if isinstance(c, nn.Linear) and n in ("q_proj", "v_proj")]  # fmt: skip
    for owner, name, layer in wanted:
        setattr(owner, name, _Adapter(layer))


def _frozen_below(module: nn.Module) -> None:
    module.get_input_embeddings().requires_grad_(False)  # type: ignore[operator]
    module.model.layers[0].requires_grad_(False)  # type: ignore[union-attr, index]


def _tied() -> Step:
    return Called(
        lambda m, ids: F.cross_entropy(F.linear(m.net(m.words(ids)), m.words.weight).flatten(0, 1),
                                       ids.flatten()),
        words=nn.Embedding(WORDS, WIDTH), net=_mlp(),
    ), {"ids": _ids()}  # fmt: skip


class _Teacher(nn.Module):
    """A student and its moving average, which is updated in forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = _mlp()
        self.slow = copy.deepcopy(self.net).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            for slow, fast in zip(self.slow.parameters(), self.net.parameters(), strict=True):
                slow.lerp_(fast, 0.01)
            wanted = self.slow(x)
        return F.mse_loss(self.net(x), wanted)


def _hooked(net: nn.Sequential) -> None:
    kept: dict[int, torch.Tensor] = {}
    net[0].register_forward_hook(lambda m, a, out: out * 2)
    net[2].register_forward_pre_hook(lambda m, a: (a[0].clone(),))
    net[3].register_forward_hook(lambda m, a, out: kept.__setitem__(0, out))
    net[4].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))


def _feature(net: nn.Sequential) -> None:
    """A hook that holds a layer's result, as for features or a loss beside."""
    kept: list[torch.Tensor] = []
    net[1].register_forward_hook(lambda m, a, out: kept.append(out))
    net.register_forward_hook(lambda m, a, out: out + kept.pop())


def _gradient_hook(net: nn.Sequential) -> None:
    for parameter in net.parameters():
        parameter.register_hook(lambda g: g.clamp(-1, 1))


def _spectral(net: nn.Sequential) -> None:
    for layer in (0, 2):
        parametrizations.spectral_norm(net[layer])


def _weighted(net: nn.Sequential) -> None:
    for layer in (0, 2):
        parametrizations.weight_norm(net[layer])


def _orthogonal(net: nn.Sequential) -> None:
    parametrizations.orthogonal(net[0])


def _functional() -> Step:
    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        scaled = {n: p * 1.1 for n, p in m.net.named_parameters()}
        return _loss(functional_call(m.net, scaled, (x,)))

    return Called(run, net=_mlp()), {"x": _rows()}


def _vmapped() -> Step:
    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        names = dict(m.net.named_parameters())
        one = torch.func.vmap(lambda row: functional_call(m.net, names, (row[None],))[0])
        return _loss(one(x))

    return Called(run, net=_mlp()), {"x": _rows()}


def _regions(reentrant: bool, drop: float = 0.0) -> Step:
    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        x = m.first(x)
        for part in (m.one, m.two):
            x = checkpoint(lambda y, part=part: F.dropout(part(y), drop), x,
                           use_reentrant=reentrant)  # fmt: skip
        return _loss(x)

    return Called(run, first=nn.Linear(WIDTH, WIDTH), one=_mlp(), two=_mlp()), {"x": _rows()}


def _sequence(segments: int) -> Step:
    return Called(lambda m, x: _loss(checkpoint_sequential(m.net, segments, x, use_reentrant=False)),
                  net=_mlp(4)), {"x": _rows()}  # fmt: skip


def _packed(kind: str) -> Step:
    layer = getattr(nn, kind)(WIDTH, WIDTH, batch_first=True)

    def run(m: Any, ids: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        given = rnn.pack_padded_sequence(m.words(ids), lengths, batch_first=True,
                                         enforce_sorted=False)  # fmt: skip
        out, _ = rnn.pad_packed_sequence(m.rnn(given)[0], batch_first=True)
        return _loss(out)

    return Called(run, words=nn.Embedding(WORDS, WIDTH), rnn=layer), {
        "ids": _ids(), "lengths": torch.tensor([200, 131]),
    }  # fmt: skip


def _detection() -> Step:
    """Boxes matched by overlap, as detectors do: sizes, gathers and losses that values decide."""

    def run(m: Any, x: torch.Tensor, boxes: torch.Tensor, kinds: torch.Tensor) -> torch.Tensor:
        h = m.net(x)
        said, at = m.kind(h), m.box(h).sigmoid()
        with torch.no_grad():
            near = torch.cdist(at, boxes, p=1)
            best = near.argmin(0)
        wanted = torch.full((len(x),), 9)
        wanted[best] = kinds
        return F.cross_entropy(said, wanted) + F.l1_loss(at[best], boxes)

    return Called(run, net=_mlp(), kind=nn.Linear(WIDTH, 10), box=nn.Linear(WIDTH, 4)), {
        "x": torch.rand(512, WIDTH), "boxes": torch.rand(20, 4), "kinds": torch.randint(0, 9, (20,)),
    }  # fmt: skip


def _speech() -> Step:
    import transformers as hf

    config = hf.Wav2Vec2Config(
        vocab_size=32, hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, conv_dim=(32, 32), conv_stride=(5, 4), conv_kernel=(10, 8),
        num_feat_extract_layers=2, num_conv_pos_embeddings=16, num_conv_pos_embedding_groups=4,
        mask_time_prob=0.0, layerdrop=0.0, pad_token_id=0, ctc_loss_reduction="mean",
    )  # fmt: skip
    return Called(lambda m, **kw: m.net(**kw).loss, net=hf.Wav2Vec2ForCTC(config)), {
        "input_values": torch.randn(2, 4000), "labels": torch.randint(1, 32, (2, 20)),
    }  # fmt: skip


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

    return Called(run, net=net), {"prefix": _ids(64), "ids": _ids(192)}


def _accumulated() -> Step:
    """Two halves of a batch, their losses summed."""
    return Called(lambda m, x: sum(_loss(m.net(half)) for half in x.chunk(2)), net=_mlp()), {
        "x": _rows()
    }


def _compiled_part() -> Step:
    """A function that a library wraps for compilation, switched off as on a machine without it."""
    wrapped = torch.compiler.disable(lambda x: x * x.sigmoid())
    return Called(lambda m, x: _loss(wrapped(m.net(x))), net=_mlp()), {"x": _rows()}


def _scripted() -> Step:
    scripted = torch.jit.script(_bias_gelu)
    return Called(lambda m, x: _loss(scripted(m.net(x), m.row.weight[0])), net=_mlp(),
                  row=nn.Linear(WIDTH, 1)), {"x": _rows()}  # fmt: skip


def _bias_gelu(x: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    y = x + b
    return y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))


class _Own(torch.autograd.Function):
    """Saves one tensor and a mask of it, writes its gradient by hand."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x > 0)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad * ctx.saved_tensors[0]


def _own_function() -> Step:
    return Called(lambda m, x: _loss(_Own.apply(m.net(x))), net=_mlp()), {"x": _rows()}


def _contrast() -> Step:
    """Two views, a queue of earlier keys that is written in place."""

    class Queued(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = _mlp()
            self.register_buffer("queue", torch.randn(1024, WIDTH))
            self.register_buffer("at", torch.zeros(1, dtype=torch.long))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q = F.normalize(self.net(x), dim=1)
            with torch.no_grad():
                k = F.normalize(self.net(x.flip(0)), dim=1)
            said = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().T], dim=1)
            at = int(self.at)
            self.queue[at : at + len(k)] = k
            self.at[0] = (at + len(k)) % 1024
            return F.cross_entropy(said / 0.07, torch.zeros(len(x), dtype=torch.long))

    return Queued(), {"x": _rows()}


def _quantised() -> Step:
    """Codes nearest to what was encoded; gradients go straight through."""

    def run(m: Any, x: torch.Tensor) -> torch.Tensor:
        h = m.net(x)
        at = torch.cdist(h, m.codes.weight).argmin(1)
        code = m.codes(at)
        return F.mse_loss(code, h.detach()) + _loss(h + (code - h).detach())

    return Called(run, net=_mlp(), codes=nn.Embedding(512, WIDTH)), {"x": _rows()}


def _graph() -> Step:
    """Messages along edges, summed where they end."""

    def run(m: Any, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h = m.net(x)
        sent = m.edge(torch.cat([h[edges[0]], h[edges[1]]], dim=1)).relu()
        return _loss(torch.zeros_like(h).index_add(0, edges[1], sent))

    return Called(run, net=_mlp(), edge=nn.Linear(2 * WIDTH, WIDTH)), {
        "x": _rows(), "edges": torch.randint(0, 128, (2, 1000)),
    }  # fmt: skip


def _preferences() -> Step:
    """A model against a frozen copy of it: chosen and rejected answers in one batch."""
    import transformers as hf

    net = hf.GPT2LMHeadModel(hf.GPT2Config(vocab_size=WORDS, n_positions=512, n_embd=64, n_layer=2,
                                           n_head=4))  # fmt: skip

    def told(model: Any, ids: torch.Tensor) -> torch.Tensor:
        logits = model(input_ids=ids, use_cache=False).logits[:, :-1].log_softmax(-1)
        return logits.gather(2, ids[:, 1:, None]).squeeze(2).sum(1)

    def run(m: Any, ids: torch.Tensor) -> torch.Tensor:
        mine = told(m.net, ids)
        with torch.no_grad():
            theirs = told(m.old, ids)
        gain = (mine - theirs).chunk(2)
        return -F.logsigmoid(0.1 * (gain[0] - gain[1])).mean()

    return Called(run, net=net, old=copy.deepcopy(net).requires_grad_(False)), {"ids": _ids()}


PLAIN: Mapping[str, Callable[[], Step]] = {
    "weight norm": lambda: _plain(_weighted), "spectral norm": lambda: _plain(_spectral),
    "orthogonal": lambda: _plain(_orthogonal), "hooks": lambda: _plain(_hooked),
    "a hook that keeps": lambda: _plain(_feature), "gradient hooks": lambda: _plain(_gradient_hook),
    "half frozen": lambda: _plain(lambda net: net[2].requires_grad_(False)),
    "functional call": _functional, "vmap": _vmapped, "tied": _tied, "a teacher": lambda: (_Teacher(), {"x": _rows()}),
    "regions": lambda: _regions(False), "regions, re-entrant": lambda: _regions(True),
    "regions with dropout": lambda: _regions(False, 0.1),
    "regions with dropout, re-entrant": lambda: _regions(True, 0.1),
    "a sequence of regions": lambda: _sequence(2), "packed LSTM": lambda: _packed("LSTM"),
    "packed GRU": lambda: _packed("GRU"), "detection": _detection, "two halves": _accumulated,
    "not compiled": _compiled_part, "scripted": _scripted, "own function": _own_function,
    "contrast with a queue": _contrast, "codes": _quantised, "messages": _graph,
}  # fmt: skip
_KV: dict[str, Any] = {"call": {"use_cache": False}}
LIBRARY: Mapping[str, Callable[[], Step]] = {
    "llama, adapters": lambda: _llama(change=_adapted),
    "llama, frozen below": lambda: _llama(change=_frozen_below),
    "llama, tied": lambda: _llama(fields={"tie_word_embeddings": True}),
    "llama, left padding": lambda: _llama({"attention_mask": _padding(slice(0, 100))}),
    "llama, right padding": lambda: _llama({"attention_mask": _padding(slice(156, None))}),
    "llama, positions": lambda: _llama({"position_ids": torch.arange(LENGTH).expand(2, LENGTH)}),
    "llama, packed": lambda: _llama({"position_ids": torch.cat(
        [torch.arange(100), torch.arange(LENGTH - 100)]).expand(2, LENGTH).contiguous()}),
    "llama, bool mask": lambda: _llama({"attention_mask": torch.ones(2, LENGTH, dtype=torch.bool)}),
    "llama, 4d mask": lambda: _llama({"attention_mask": torch.ones(
        2, 1, LENGTH, LENGTH, dtype=torch.bool).tril()}),
    "llama, labels ignored": lambda: _llama({"labels": torch.where(
        torch.arange(LENGTH) < 100, -100, _ids())}),
    "llama, a cached prefix": _cached_prefix, "preferences": _preferences,
    "gemma2": lambda: _of_library("Gemma2ForCausalLM", "Gemma2Config", **_KV, **_GROUPED, head_dim=16),
    "gemma3": lambda: _of_library("Gemma3ForCausalLM", "Gemma3TextConfig", **_KV, **_GROUPED, head_dim=16, sliding_window=128),
    "qwen3": lambda: _of_library("Qwen3ForCausalLM", "Qwen3Config", **_KV, **_GROUPED, head_dim=16),
    "qwen2 moe": lambda: _of_library("Qwen2MoeForCausalLM", "Qwen2MoeConfig", **_KV, **_GROUPED, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, shared_expert_intermediate_size=32),
    "phi3": lambda: _of_library("Phi3ForCausalLM", "Phi3Config", **_KV, **_GROUPED),
    "mistral, window": lambda: _of_library("MistralForCausalLM", "MistralConfig", **_KV, **_GROUPED, sliding_window=64),
    "modernbert": lambda: _of_library("ModernBertForMaskedLM", "ModernBertConfig", **(_TEXT | {"cls_token_id": 1, "sep_token_id": 2, "global_attn_every_n_layers": 2})),
    "deberta": lambda: _of_library("DebertaV2ForMaskedLM", "DebertaV2Config", **_TEXT, relative_attention=True, pos_att_type=["p2c", "c2p"], position_buckets=32),
    "xlnet": lambda: _of_library("XLNetLMHeadModel", "XLNetConfig", vocab_size=WORDS, d_model=64, n_layer=2, n_head=4, d_inner=96),
    "electra": lambda: _of_library("ElectraForMaskedLM", "ElectraConfig", **_TEXT, embedding_size=32),
    "albert": lambda: _of_library("AlbertForMaskedLM", "AlbertConfig", **_TEXT, embedding_size=32),
    "bloom": lambda: _of_library("BloomForCausalLM", "BloomConfig", **_KV, vocab_size=WORDS, hidden_size=64, n_layer=2, n_head=4),
    "neox": lambda: _of_library("GPTNeoXForCausalLM", "GPTNeoXConfig", **_KV, **_TEXT),
    "falcon": lambda: _of_library("FalconForCausalLM", "FalconConfig", **_KV, vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, num_attention_heads=4),
    "mamba": lambda: _of_library("MambaForCausalLM", "MambaConfig", **_KV, vocab_size=WORDS, hidden_size=64, num_hidden_layers=2, state_size=8),
    "olmo2": lambda: _of_library("Olmo2ForCausalLM", "Olmo2Config", **_KV, **_GROUPED),
    "longformer": lambda: _of_library("LongformerForMaskedLM", "LongformerConfig", **_TEXT, attention_window=32),
    "swin": lambda: _of_library("SwinForImageClassification", "SwinConfig", _images(), image_size=64, patch_size=4, embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=10),
    "convnext": lambda: _of_library("ConvNextForImageClassification", "ConvNextConfig", _images(), num_channels=3, hidden_sizes=[16, 32], depths=[2, 2], num_stages=2, num_labels=10),
    "segformer": lambda: _of_library("SegformerForSemanticSegmentation", "SegformerConfig", {"pixel_values": torch.randn(2, 3, 64, 64), "labels": torch.randint(0, 5, (2, 64, 64))}, num_labels=5, hidden_sizes=[16, 16, 32, 32], decoder_hidden_size=32, num_attention_heads=[1, 2, 2, 4], depths=[1, 1, 1, 1]),
    "speech, ctc": _speech,
}  # fmt: skip


def steps() -> Iterator[tuple[str, Callable[[], Step]]]:
    """All, each from the same seed."""
    for name, make in (PLAIN | LIBRARY).items():
        yield name, lambda make=make: _seeded(make)


def _seeded(make: Callable[[], Step]) -> Step:
    torch.manual_seed(0)
    module, kwargs = make()
    return module.train(), kwargs
