"""What a plain training loop allocates, by the profiler's events alone: nobody else looks."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile
from torch.utils._pytree import tree_leaves


def peak_of_loop(module, args=(), kwargs=None, loss=None, optimizer=None):
    """Bytes before the second step and the most that it adds; SGD unless an optimizer is given."""
    kwargs, loss = kwargs or {}, loss or (lambda out: out.sum())
    made = (optimizer or (lambda p: torch.optim.SGD(p, lr=0.01)))(module.parameters())

    def step():
        out = module(*args, **kwargs)
        value = loss(out)
        del out
        value.backward()
        del value
        made.step()
        made.zero_grad(set_to_none=True)

    step()
    state = [list(entry.values()) for entry in made.state.values()]
    held = [*module.parameters(), *module.buffers(), *tree_leaves((args, kwargs, state))]
    stores = [t.untyped_storage() for t in held if isinstance(t, torch.Tensor)]
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        step()
    now = most = 0
    for event in seen.profiler.kineto_results.events():
        if event.name() == "[memory]":
            now += event.nbytes()
            most = max(most, now)
    return sum({store._cdata: store.nbytes() for store in stores}.values()) + most
