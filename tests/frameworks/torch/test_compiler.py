"""torch's compiler comes with its first use, whoever uses it and however, and not before."""

import subprocess
import sys

import pytest

BEGIN = """
import sys, torch
from elastic.frameworks import load_framework
load_framework("torch")
def is_there(): return "torch._dynamo.eval_frame" in sys.modules
weights = torch.nn.Parameter(torch.ones(3))
def updated():
    optimizer = torch.optim.Adam([weights], fused=True)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    optimizer.zero_grad()
    weights.sum().backward()
    optimizer.step()
    schedule.step()
    optimizer.load_state_dict(optimizer.state_dict())
    optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))]})
"""
USES = {
    "compile": "assert torch.compile(lambda x: x + 1, backend='eager')(torch.ones(1)) == 2",
    "attribute": "assert torch._dynamo.config.suppress_errors is False",
    "import": "import torch._dynamo.config as config; assert config.suppress_errors is False",
    "from": "from torch._dynamo import explain; assert callable(explain)",
    "left out": "assert torch.compiler.disable(lambda: 7)() == 7",
    "reset": "torch._dynamo.reset()",
}


def run(program):
    ended = subprocess.run([sys.executable, "-c", BEGIN + program], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr


def test_optimizers_and_schedules_do_without():
    run("updated(); assert weights[0] < 1; assert not is_there()")


@pytest.mark.parametrize("use", USES)
def test_whoever_uses_it_gets_it(use):
    run(
        f"updated(); assert not is_there()\n{USES[use]}\nassert is_there()\n"
        "assert sys.modules['torch._dynamo'] is torch._dynamo\n"
        "assert torch._dynamo.__path__\nupdated()\n"
        # torch has asked it again about what it had been told before.
        "made = vars(torch.optim.Optimizer.zero_grad.__wrapped__)['__dynamo_disable']\n"
        "assert made is not torch.optim.Optimizer.zero_grad.__wrapped__"
    )


def test_a_step_that_is_compiled_updates_as_before():
    run(
        "optimizer = torch.optim.SGD([weights], lr=0.5)\n"
        "weights.sum().backward()\n"
        "torch.compile(optimizer.step, backend='eager')()\n"
        "assert weights.tolist() == [0.5] * 3 and is_there()"
    )


def test_where_it_is_there_already_it_stays():
    run("import torch._dynamo as there; load_framework('torch'); assert torch._dynamo is there")
