"""Training steps of torch modules as a user asks for them."""

from __future__ import annotations

import json
import pickle

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

SOURCE = """
import torch
from peakfold.frontends.torch.module import Example

def mlp():
    layers = [torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Dropout(0.1)]
    model = torch.nn.Sequential(*layers, torch.nn.Linear(256, 64)).train()
    return Example(model, (torch.zeros(32, 64),), dynamic={"input": {0: "batch"}})

def attention():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.drop = torch.nn.Linear(32, 96), torch.nn.Dropout(0.1)
        def forward(self, x):
            q, k, v = self.qkv(x).view(*x.shape[:2], 3, 2, 16).permute(2, 0, 3, 1, 4)
            attend = torch.nn.functional.scaled_dot_product_attention
            return self.drop(attend(q, k, v, dropout_p=0.1))
    return Example(Net().train(), (torch.zeros(2, 64, 32),), dynamic={"x": {0: "batch"}})

def plain():
    return torch.nn.Linear(8, 8), (torch.zeros(2, 8),)

def on_a_gpu():
    model = torch.nn.Linear(1 << 20, 1 << 16).cuda().to("cuda")  # 256 GiB: never built
    return model, (torch.zeros(1, 1 << 20, device="cuda").to(torch.device("cuda", 0)),)

def small_on_a_gpu():
    return torch.nn.Linear(4, 4).to("cuda:0"), (torch.zeros(2, 4).cuda(),)

def heavy():
    layers = [torch.nn.Linear(1 << 16, 1 << 16) for _ in range(2)]
    return Example(torch.nn.Sequential(*layers), (torch.zeros(2, 1 << 16),),
                   dynamic={"input": {0: "batch"}})

def heavy_without_a_name():
    return torch.nn.Sequential(torch.nn.Linear(1 << 16, 1 << 16)), (torch.zeros(2, 1 << 16),)

def no_such_axis():
    return Example(torch.nn.Linear(4, 4), (torch.zeros(2, 4),), dynamic={"input": {-2: "batch"}})

def squares(out):
    return (out ** 2).sum()

def of_many():
    return Example(torch.nn.Linear(4, 4), (torch.zeros(2, 4),), loss=lambda out: out)

def closure():
    return Example(torch.nn.Linear(4, 4), (torch.zeros(2, 4),), optimizer=torch.optim.LBFGS)

def wrong_shape():
    return torch.nn.Linear(4, 4), (torch.zeros(2, 5),)

def doubtful():
    class Net(torch.nn.Linear):
        def forward(self, x):
            y = super().forward(x)
            return y if y.sum() > 0 else -y
    return Net(4, 4), (torch.zeros(2, 4),)
"""


@pytest.fixture
def nets(tmp_path, monkeypatch):
    (tmp_path / "some_nets.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return "some_nets"


@pytest.fixture
def call(call):
    """Steps whose loss and optimizer are stated, where a test does not choose them."""

    def stated(*args):
        if "--train" in args:
            for name, value in (("--loss", "sum"), ("--optimizer", "sgd")):
                args = args if name in args else (*args, name, value)
        return call(*args)

    stated.bare = call
    return stated


@pytest.mark.req("R3", "R5", "R12", "R15")
def test_plan(call, nets, tmp_path):
    flags = ("--train", "--optimizer", "adamw", "--dim", "batch=64")
    plan, shot = str(tmp_path / "p.json"), str(tmp_path / "s.pickle")
    done = call("plan", f"{nets}:mlp", *flags, "-o", plan, "--snapshot", shot, "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    weights = 4 * (64 * 256 + 256 + 256 * 64 + 64)
    steady = answer["steady"]
    assert steady["at_peak_by_role"]["parameter"] == weights
    assert steady["static_bytes"] == 3 * weights + 4 * 4 + 4 * 64 * 64
    assert answer["first"]["static_bytes"] == weights + 4 * 64 * 64
    assert list(steady["phases"]) == ["forward", "backward", "optimizer", "after"]
    assert sum(steady["at_peak_by_role"].values()) == steady["peak_bytes"]
    assert sum(steady["at_peak_by_scope"].values()) == steady["peak_bytes"]
    assert answer["summary"]["arena_bytes"] <= steady["dynamic_bytes"]
    assert answer["plan"]["graph"]["format"] == "torch"
    assert answer["cuda"] is None
    assert pickle.loads((tmp_path / "s.pickle").read_bytes())["device_traces"][0]
    text = call("plan", f"{nets}:mlp", *flags)
    assert "steady step" in text.stdout


@pytest.mark.req("R3")
def test_devices(call, nets):
    flags = ("--train", "--kernels", "cuda", "--json", "--device")
    small = json.loads(call("plan", f"{nets}:mlp", *flags, "t4").stdout)
    assert small["fits"]
    assert small["devices"] == 1
    assert small["cuda"]["reserved_bytes"] >= small["cuda"]["allocated_bytes"]
    assert small["cuda"]["verified"] is False
    done = call("plan", f"{nets}:mlp", *flags, "t4", "--dim", "batch=9000000")
    large = json.loads(done.stdout)
    assert done.exit_code == 3
    assert large["fits"] is False
    assert large["devices"] > 1


@pytest.mark.req("R3")
def test_why_no_number_of_devices_is_told(call, nets):
    """Weights, gradients and a copy of one of them: 3 x 32 GiB do not fit 24 GB in any batch."""
    flags = ("--train", "--json", "--device", "rtx-4090")
    alone = json.loads(call("plan", f"{nets}:heavy", *flags).stdout)
    assert alone["devices"] is None
    (said,) = [note for note in alone["notes"] if "data parallel" in note]
    assert said.endswith(f"the memory of {-(-alone['need_bytes'] // alone['have_bytes'])} devices")
    nameless = json.loads(call("plan", f"{nets}:heavy_without_a_name", *flags).stdout)
    assert nameless["devices"] is None
    assert any("no dimension of the example has a name" in note for note in nameless["notes"])
    assert (
        "do not help"
        not in call("plan", f"{nets}:heavy_without_a_name", *flags[:1], *flags[2:]).stdout
    )


@pytest.mark.req("R3", "R14")
def test_targets_decide_what_differs_by_device(call, nets):
    def planned(*flags):
        done = call("plan", f"{nets}:attention", "--train", "--json", *flags)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    cpu, cuda = planned("--target", "torch-cpu"), planned("--target", "torch-cuda")
    assert cpu["cuda"] is None
    assert cuda["cuda"]["library_bytes"] == 2 * 8_519_680
    assert cuda["cuda"]["allocated_bytes"] > cuda["steady"]["peak_bytes"] + 2 * 8_519_680
    by_hand = planned("--kernels", "cuda", "--attention", "fused")
    assert cuda["steady"] == by_hand["steady"]
    assert cpu["steady"] == planned()["steady"]
    assert planned("--device", "t4")["steady"] == cuda["steady"]
    scores = 4 * 2 * 2 * 64 * 64
    assert cpu["steady"]["peak_bytes"] - cuda["steady"]["peak_bytes"] > 3 * scores
    masks = planned("--target", "torch-cuda", "--attention", "math")
    assert masks["steady"]["peak_bytes"] > cuda["steady"]["peak_bytes"] + scores
    assert (
        call(
            "plan", f"{nets}:attention", "--train", "--target", "torch-cuda", "--kernels", "cpu"
        ).exit_code
        == 2
    )
    listed = json.loads(call("targets", "--json").stdout)["targets"]
    (found,) = [t for t in listed if t["name"] == "torch-cuda"]
    assert found["eager"]["caching"]["round"] == 512
    assert found["eager"]["dropout_mask"] == "bool"
    assert found["sources"]["caching"]


def test_fit_finds_the_largest_batch(call, nets):
    flags = ("--train", "--optimizer", "sgd", "--dim", "batch=4096", "--json")
    done = call("fit", f"{nets}:mlp", *flags, "--budget", "8MiB")
    answer = json.loads(done.stdout)
    most = answer["largest_batch"]
    assert most > 1

    def peak(batch):
        found = call(
            "plan",
            f"{nets}:mlp",
            "--train",
            "--optimizer",
            "sgd",
            "--dim",
            f"batch={batch}",
            "--json",
        )
        answer = json.loads(found.stdout)
        return max(answer["first"]["peak_bytes"], answer["steady"]["peak_bytes"])

    assert peak(most) <= 8 << 20 < peak(most + 1)
    assert answer["options"][0]["fits"] is False
    assert answer["fits"] == any(lever["fits"] for lever in answer["options"])
    assert done.exit_code == (0 if answer["fits"] else 3)


def test_measure(call, nets):
    done = call(
        "measure", f"{nets}:mlp", "--runtime", "torch", "--train", "--optimizer", "adamw", "--json"
    )
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["obeyed"]
    assert answer["steady"]["predicted_bytes"] == answer["steady"]["tensor_bytes"]
    again = call(
        "measure",
        f"{nets}:mlp",
        "--runtime",
        "torch",
        "--train",
        "--accumulate",
        "2",
        "--autocast",
        "bfloat16",
        "--optimizer-form",
        "foreach",
    )
    assert "the prediction holds" in again.stdout
    assert "2 batches accumulated" in again.stdout
    assert "autocast to bfloat16" in again.stdout
    assert call("measure", "model.tflite", "--accumulate", "2").exit_code == 2


@pytest.mark.req("R3")
def test_fit_without_a_named_batch_answers_all_the_same(call, nets):
    flags = ("fit", f"{nets}:plain", "--train", "--optimizer", "sgd", "--budget")
    for budget, code in (("1MiB", 0), ("100", 3)):
        done = call(*flags, budget, "--json")
        answer = json.loads(done.stdout)
        assert done.exit_code == code
        assert answer["fits"] is (code == 0)
        assert answer["largest_batch"] is None
        assert "dynamic=" in answer["batch_note"]
        assert not any("parts" in lever["what"] for lever in answer["options"])
    assert "largest batch as it is: not known" in call(*flags, "1MiB").stdout


@pytest.mark.req("R3")
def test_levers_are_offered_where_they_change_something_and_say_what_they_cost(call, nets):
    def options(model, *flags):
        done = call("fit", f"{nets}:{model}", "--train", "--budget", "2MiB", "--json", *flags)
        return json.loads(done.stdout)["options"]

    bare = options("mlp")
    assert not any("attention" in lever["what"] for lever in bare)
    assert any("attention" in lever["what"] for lever in options("attention"))
    assert not any("one parameter" in lever["what"] for lever in bare)  # a CPU's default
    assert sum("parts" in lever["what"] for lever in bare) == 1  # the first that fits
    tight = [v for v in options("mlp", "--budget", "10KiB") if "parts" in v["what"]]
    assert len(tight) == 5  # the example's batch of 32 is halved five times
    assert {lever["extra_time_s"] for lever in bare[1:]} == {None}
    assert all(lever["why_unknown"] for lever in bare[1:])
    card = options("mlp", "--device", "t4", "--optimizer", "adamw", "--kernels", "cuda")
    assert card[0]["extra_time_s"] == card[0]["extra_flops"] == 0
    walk = next(lever for lever in card if "one parameter" in lever["what"])
    assert "_foreach" in walk["why_unknown"]
    halves = [lever for lever in card if "parts" in lever["what"]]
    times = [lever["extra_time_s"] for lever in halves]
    assert 0 < times[0] < times[1] < times[2]
    text = call("fit", f"{nets}:mlp", "--train", "--budget", "2MiB", "--device", "t4").stdout
    assert "extra work" in text
    assert " us" in text or " ns" in text


@pytest.mark.req("R3", "R14")
def test_measure_on_a_card(call, nets, monkeypatch):
    import torch

    from peakfold.runtimes.torch import cuda
    from tests.runtimes.torch.card import Card

    flags = ("measure", f"{nets}:mlp", "--runtime", "torch", "--train")
    if not torch.cuda.is_available():
        done = call(*flags, "--device", "cuda")
        assert done.exit_code == 1
        assert "CUDA" in done.stderr
        assert "Traceback" not in done.stderr
    monkeypatch.setattr(cuda, "CudaAllocator", Card)
    done = call(*flags, "--device", "cuda", "--json")
    answer = json.loads(done.stdout)
    assert answer["device"] == "cuda"
    assert "measured on cuda, as asked" in answer["notes"]
    assert answer["context_bytes"] == 500 << 20
    assert answer["predicted_context_bytes"] == 512 << 20
    steady = answer["steady"]
    assert list(steady["device_phases"]) == ["forward", "backward", "optimizer", "after"]
    assert steady["predicted_reserved_bytes"] == 22 << 20
    # Nobody watches this card, so it is empty: a prediction that is off is said, with 5.
    assert steady["allocator_bytes"] == steady["reserved_bytes"] == 0
    assert answer["obeyed"] is False
    assert done.exit_code == 5
    text = call(*flags, "--device", "cuda")
    assert "backward, segments" in text.stdout
    on_cpu = json.loads(call(*flags, "--device", "cpu", "--json").stdout)
    assert on_cpu["device"] == "cpu"
    assert on_cpu["context_bytes"] is None
    assert on_cpu["steady"]["device_phases"] is None
    assert call("measure", f"{nets}:mlp", "--device", "cpu").exit_code == 2


@pytest.mark.req("R3", "R5")
def test_two_ways_to_the_graph(call, nets):
    answers = {}
    for way in ("eager", "joint"):
        done = call("plan", f"{nets}:plain", "--train", "--capture", way, "--json", "--align", "1")
        assert done.exit_code == 0, done.output
        answers[way] = json.loads(done.stdout)
    assert answers["eager"]["steady"] == answers["joint"]["steady"]
    # Gradients of weight and bias and the loss outlive the step; the loss has a gradient given.
    joint = answers["joint"]["summary"]
    assert joint["output_bytes"] == 4 * (64 + 8 + 1)
    assert joint["input_bytes"] == 4 * (16 + 1)
    assert any("without the update" in note for note in answers["joint"]["notes"])
    done = call("plan", f"{nets}:plain", "--train", "--capture", "joint", "--accumulate", "2")
    assert done.exit_code == 2
    assert "--capture eager" in done.stderr
    done = call("plan", f"{nets}:doubtful", "--train", "--capture", "joint")
    assert done.exit_code == 1
    assert "some_nets.py" in done.stderr
    assert "Traceback" not in done.stderr
    assert call("plan", f"{nets}:plain", "--capture", "joint").exit_code == 2


@pytest.mark.req("R3")
def test_a_model_that_asks_for_a_gpu_is_planned_without_one(call, nets):
    import torch

    done = call("plan", f"{nets}:on_a_gpu", "--train", "--json")
    assert done.exit_code == 0, done.output
    answer = json.loads(done.stdout)
    assert answer["steady"]["static_bytes"] == 4 * ((1 << 36) + (1 << 16) + (1 << 20))
    assert not any("built with its memory" in note for note in answer["notes"])
    small = ("measure", f"{nets}:small_on_a_gpu", "--runtime", "torch", "--train")
    assert call(*small, "--device", "cpu").exit_code == 0
    if not torch.cuda.is_available():
        done = call(*small)
        assert done.exit_code == 1
        assert "--device cpu" in done.stderr


@pytest.mark.parametrize(
    "verb", [("plan",), ("fit", "--budget", "1MiB"), ("measure", "--runtime", "torch")]
)
@pytest.mark.parametrize(
    ("model", "code", "said"),
    [
        ("of_many", 2, "shape (2, 4), not one number"),
        ("closure", 2, "LBFGS"),
        ("doubtful", 1, "depends on the values of a tensor"),
        ("nothing", 2, "'nothing'"),
        ("wrong_shape", 1, "check that one step"),
    ],
)
def test_what_cannot_be_trained_is_said_in_one_line(call, nets, verb, model, code, said):
    done = call(verb[0], f"{nets}:{model}", "--train", *verb[1:])
    assert done.exit_code == code
    assert done.stdout == ""
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert "Could not guard" not in done.stderr


def test_bad_requests(call, nets):
    done = call("plan", f"{nets}:doubtful", "--train")
    assert done.exit_code == 1
    assert "some_nets.py" in done.stderr
    assert "has no axis -2" in call("plan", f"{nets}:no_such_axis", "--train").stderr
    assert call("plan", f"{nets}:mlp", "--train", "--optimizer", "lion").exit_code == 2
    assert call("plan", f"{nets}:mlp", "--attention", "fused").exit_code == 2
    done = call("plan", f"{nets}:mlp", "--train", "--budget", "1KiB")
    assert done.exit_code == 3
    assert "the step needs" in done.stderr
    assert call("plan", f"{nets}:mlp", "--train", "--svg", "map.svg").exit_code == 2
    assert (
        call("measure", f"{nets}:mlp", "--runtime", "torch", "--autocast", "bfloat16").exit_code
        == 2
    )
    assert call("measure", "model.tflite", "--train").exit_code == 2
    assert call("plan", f"{nets}:mlp", "--train", "--dim", "beat=3").exit_code == 2


@pytest.mark.req("R3", "R15")
@pytest.mark.parametrize(
    "verb", [("plan",), ("fit", "--budget", "1MiB"), ("measure", "--runtime", "torch")]
)
def test_loss_and_optimizer_are_said_or_asked_for(call, nets, verb):
    def run(*flags):
        return call.bare(verb[0], f"{nets}:plain", "--train", *verb[1:], *flags)

    done = run()
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "returns no loss (--loss cross-entropy|mse|sum|module:function" in done.stderr
    answer = json.loads(run("--loss", "cross-entropy", "--json").stdout)
    assert answer["loss"].startswith("cross-entropy of [2, 8], classes in dimension 1")
    assert answer["optimizer"].startswith("adamw (none named), default form")
    assert (answer["result_kept"], answer["result_kept_bytes"]) == (False, 64)
    lines = run("--loss", f"{nets}:squares", "--optimizer", "sgd").stdout.splitlines()
    assert lines[1:4] == [
        "loss: the function given (squares)",
        "optimizer: sgd, default form (for-loop where it has one)",
        "result kept: no (+64 B in a loop that keeps it)",
    ]
    kept = json.loads(run("--loss", "cross-entropy", "--keep-result", "--json").stdout)
    assert (kept["result_kept"], kept["result_kept_bytes"]) == (True, 0)
    for bad in ("hinge", "external", f"{nets}:nothing", "no_such_module:loss"):
        done = run("--loss", bad)
        assert done.exit_code == 2, bad
        assert done.stderr.count("\n") == 1


def test_the_loss_of_an_example_comes_first(call, nets):
    done = call.bare("plan", f"{nets}:of_many", "--train", "--loss", "sum")
    assert "shape (2, 4), not one number" in done.stderr
    assert call.bare("measure", "model.tflite", "--loss", "sum").exit_code == 2
    done = call.bare("plan", f"{nets}:plain", "--train", "--loss", "sum", "--input-grad")
    assert "differentiated by torch itself" in done.stderr
