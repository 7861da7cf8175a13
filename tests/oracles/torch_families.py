"""Sixteen families of transformers, small, with random weights: steps, prefills, decode steps.

``python -m tests.oracles.torch_families THREADS`` reads names of cases, a line each, and prints the
truth of each as a line of JSON: a plain loop under torch's profiler, in a process that imports
nothing of peakfold. A name is ``family attention mask way``: ``llama sdpa ones checkpointed``.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import transformers as hf
from torch.profiler import ProfilerActivity, profile

WORDS, LENGTH, BATCH, LATER = 200, 256, 2, 8
"""Vocabulary, tokens, sequences, steps of decoding; 2 x 4 x 256 x 256 is 524,288 scores."""

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
_SEEN: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "image_size": 128,
    "patch_size": 8,
}
_BOTH: dict[str, Any] = {
    "vocab_size": WORDS,
    "d_model": 64,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 96,
    "decoder_ffn_dim": 96,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}

Make = Callable[[str], torch.nn.Module]


def _made(model: str, config: str, **fields: Any) -> Make:
    def make(attention: str) -> torch.nn.Module:
        torch.manual_seed(0)
        settings = getattr(hf, config)(**fields, attn_implementation=attention)
        return getattr(hf, model)(settings)

    return make


def _clip(attention: str) -> torch.nn.Module:
    torch.manual_seed(0)
    text = _TEXT | {"projection_dim": 64, "bos_token_id": 198, "eos_token_id": 199}
    config = hf.CLIPConfig(
        text_config=text,
        vision_config=_SEEN | {"projection_dim": 64},
        projection_dim=64,
        attn_implementation=attention,
    )
    return hf.CLIPModel(config)


FAMILIES: dict[str, Make] = {
    "llama": _made("LlamaForCausalLM", "LlamaConfig", **_GROUPED),
    "mistral": _made("MistralForCausalLM", "MistralConfig", **_GROUPED, sliding_window=128),
    "qwen": _made("Qwen2ForCausalLM", "Qwen2Config", **_GROUPED),
    "gemma": _made("GemmaForCausalLM", "GemmaConfig", **_GROUPED, head_dim=16),
    "phi": _made("PhiForCausalLM", "PhiConfig", **_TEXT),
    "mixtral": _made("MixtralForCausalLM", "MixtralConfig", **_GROUPED, num_local_experts=4),
    "gpt2": _made("GPT2LMHeadModel", "GPT2Config", vocab_size=WORDS, n_positions=512, n_embd=64,
                  n_layer=2, n_head=4),
    "opt": _made("OPTForCausalLM", "OPTConfig", vocab_size=WORDS, hidden_size=64, ffn_dim=96,
                 num_hidden_layers=2, num_attention_heads=4, word_embed_proj_dim=64,
                 max_position_embeddings=512),
    "bert": _made("BertForMaskedLM", "BertConfig", **_TEXT),
    "roberta": _made("RobertaForMaskedLM", "RobertaConfig", **_TEXT),
    "distilbert": _made("DistilBertForMaskedLM", "DistilBertConfig", vocab_size=WORDS, dim=64,
                        hidden_dim=96, n_layers=2, n_heads=4, max_position_embeddings=512),
    "t5": _made("T5ForConditionalGeneration", "T5Config", vocab_size=WORDS, d_model=64, d_kv=16,
                d_ff=96, num_layers=2, num_heads=4, decoder_start_token_id=0, pad_token_id=0),
    "bart": _made("BartForConditionalGeneration", "BartConfig", **_BOTH,
                  max_position_embeddings=512),
    "whisper": _made("WhisperForConditionalGeneration", "WhisperConfig", **_BOTH, num_mel_bins=20,
                     max_source_positions=LENGTH, max_target_positions=512,
                     begin_suppress_tokens=None, suppress_tokens=None),
    "vit": _made("ViTForImageClassification", "ViTConfig", **_SEEN, num_labels=10),
    "clip": _clip,
}  # fmt: skip
IMAGES = {"vit"}
CACHED = (
    "llama",
    "mistral",
    "qwen",
    "gemma",
    "phi",
    "mixtral",
    "gpt2",
    "opt",
    "t5",
    "bart",
    "whisper",
)
_TWO = {"t5", "bart", "whisper"}
WAYS = (
    "step",
    "checkpointed",
    "reentrant",
    "autocast",
    "adamw",
    "foreach",
    "fused",
    "prefill",
    "decode",
)


@dataclass(frozen=True)
class Case:
    """One case: a model, and how it is run.

    Attributes:
        name: family, attention, mask and way.
        module: in training mode for steps.
        kwargs: its inputs.
    """

    name: str
    module: torch.nn.Module
    kwargs: dict[str, Any]

    @property
    def way(self) -> str:
        """One of `WAYS`."""
        return self.name.split()[3]

    @property
    def autocast(self) -> torch.dtype | None:
        """Of the forward pass."""
        return torch.bfloat16 if self.way == "autocast" else None

    def optimizer(self, parameters: Iterable[Any]) -> torch.optim.Optimizer:
        """That of the step."""
        forms = {
            "adamw": {"foreach": False},
            "foreach": {"foreach": True},
            "fused": {"fused": True},
        }
        if self.way in forms:
            return torch.optim.AdamW(parameters, **forms[self.way])
        return torch.optim.SGD(parameters, lr=0.1)


def names() -> Iterator[str]:
    """All cases."""
    for family in FAMILIES:
        masks = ("none",) if family in IMAGES else ("none", "ones")
        for attention in ("sdpa", "eager"):
            for mask in masks:
                for way in WAYS:
                    if way == "decode" and family not in CACHED:
                        continue
                    if way in ("adamw", "foreach", "fused", "reentrant") and (
                        attention == "eager" or mask == "ones"
                    ):
                        continue
                    yield f"{family} {attention} {mask} {way}"
    for family in ("llama", "bert", "bart"):
        yield f"{family} sdpa padded step"


def build(name: str) -> Case:
    """A case by its name, its model in memory."""
    family, attention, mask, way = name.split()
    module = FAMILIES[family](attention)
    torch.manual_seed(1)
    kwargs = _inputs(family, mask, trains=way not in ("prefill", "decode"))
    if way in ("checkpointed", "reentrant"):
        module.gradient_checkpointing_enable({"use_reentrant": way == "reentrant"})
    return Case(name, module.train(way not in ("prefill", "decode")), kwargs)


def _inputs(family: str, mask: str, *, trains: bool) -> dict[str, Any]:
    ids = torch.randint(3, WORDS - 2, (BATCH, LENGTH))
    given: dict[str, Any] = {}
    if family in ("vit", "clip"):
        given["pixel_values"] = torch.randn(BATCH, 3, 128, 128)
    if family == "vit":
        return given | ({"labels": torch.tensor([1, 2])} if trains else {})
    if family == "clip":
        ids[:, -1] = 199
    if family == "whisper":
        given["input_features"] = torch.randn(BATCH, 20, 2 * LENGTH)
    else:
        given["input_ids"] = ids
    masked = "decoder_attention_mask" if family == "whisper" else "attention_mask"
    if mask != "none":
        given[masked] = torch.ones(BATCH, LENGTH, dtype=torch.long)
    if mask == "padded":
        given[masked][1, LENGTH // 2 :] = 0
    if not trains:
        given |= {"decoder_input_ids": ids} if family in _TWO else {}
        return given | ({"use_cache": True} if family in CACHED else {})
    if family == "clip":
        return given | {"return_loss": True}
    return given | {"labels": ids.clone()} | ({"use_cache": False} if family in CACHED else {})


def later(case: Case) -> Iterator[dict[str, Any]]:
    """The inputs of each step of decoding; whoever asks for the next one runs one in between."""
    recorded = profile(activities=[ProfilerActivity.CPU], profile_memory=True)
    with torch.no_grad(), recorded:  # the profiler tells the end only of what it saw begin
        first = case.module(**case.kwargs)
    family = case.name.split()[0]
    cache, ids = first.past_key_values, "decoder_input_ids" if family in _TWO else "input_ids"
    for at in range(LATER):
        given: dict[str, Any] = {
            ids: torch.randint(3, WORDS - 2, (BATCH, 1)),
            "past_key_values": cache,
            "use_cache": True,
        }
        if family in _TWO:
            given["encoder_outputs"] = (first.encoder_last_hidden_state,)
        if "attention_mask" in case.kwargs:
            more = 0 if family in _TWO else at + 1
            given["attention_mask"] = torch.ones(BATCH, LENGTH + more, dtype=torch.long)
        yield given
        del given


def advance(case: Case, given: dict[str, Any]) -> None:
    """Run a step of decoding: the cache grows."""
    with torch.no_grad():
        case.module(**given)


def tensors(tree: Any, depth: int = 0) -> Iterator[torch.Tensor]:
    """The tensors of inputs, those that a cache's layers hold included."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item, depth + 1)
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors(item, depth + 1)
    elif hasattr(tree, "__dict__") and depth < 8:
        yield from tensors(vars(tree), depth + 1)


def there(held: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages of tensors. None of them is kept: a cache may let go of its own."""
    return sum({s._cdata: s.nbytes() for s in (t.untyped_storage() for t in held)}.values())


def allocated(run: Callable[[], Any], before: int) -> int:
    """Bytes that were there before, plus the most that the allocations of a run add up to."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        kept = run()
    del kept
    total = highest = 0
    for event in seen.profiler.kineto_results.events():  # in the order of their recording
        if event.name() == "[memory]":
            total += event.nbytes()
            highest = max(highest, total)
    return before + highest


def truths(case: Case) -> list[int]:
    """The peak of a case: of its second step, of a forward pass, or of each step of decoding."""
    module = case.module
    own = (*module.parameters(), *module.buffers())
    if case.way == "decode":
        return [_plainly(module, given, there((*own, *tensors(given)))) for given in later(case)]
    held = (*own, *tensors(case.kwargs))
    if case.way == "prefill":
        with torch.no_grad():
            module(**case.kwargs)
        return [_plainly(module, case.kwargs, there(held))]
    optimizer = case.optimizer(module.parameters())

    def once() -> None:
        region = torch.autocast("cpu", dtype=case.autocast) if case.autocast else nullcontext()
        with region:
            loss = module(**case.kwargs).loss
        loss.backward()
        del loss
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    once()
    states = tensors(list(optimizer.state.values()))
    return [allocated(once, there((*held, *states)))]


def _plainly(module: torch.nn.Module, given: dict[str, Any], before: int) -> int:
    with torch.no_grad():
        return allocated(lambda: module(**given), before)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(int(sys.argv[1]))  # kernels take scratch for each
    for line in sys.stdin.read().splitlines():
        try:
            print(json.dumps([line, truths(build(line))]), flush=True)
        except Exception as error:  # a model that torch itself cannot run so
            print(json.dumps([line, f"{type(error).__name__}: {error}"[:200]]), flush=True)
