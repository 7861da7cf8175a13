"""Steps with a stated loss and optimizer: the sum (of modules without their own) and SGD.

The names are those of `peakfold.frontends.torch.training.step`; a test that chooses others says so.
"""

from __future__ import annotations

from functools import partial

from peakfold.frontends.torch.training import joint as torch_joint
from peakfold.frontends.torch.training import options as torch_options
from peakfold.frontends.torch.training import step as torch_step

StepOptions = partial(torch_options.StepOptions, optimizer="sgd", loss="sum")


def fake_steps(module, args=(), kwargs=None, options=None, **more):
    return torch_step.fake_steps(module, args, kwargs, options or StepOptions(), **more)


def real_steps(module, args=(), kwargs=None, options=None, **more):
    return torch_step.real_steps(module, args, kwargs, options or StepOptions(), **more)


def step_graph(module, args=(), kwargs=None, options=None, *names):
    return torch_step.step_graph(module, args, kwargs, options or StepOptions(), *names)


def joint_graph(module, args=(), kwargs=None, options=None, names=()):
    return torch_joint.joint_graph(module, args, kwargs, options or StepOptions(), names)


def measure_training(module, args=(), kwargs=None, options=None):
    from peakfold.runtimes.torch import measure

    return measure.measure_training(module, args, kwargs, options or StepOptions())
