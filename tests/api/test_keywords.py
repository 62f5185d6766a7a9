"""What a type checker says of a script that starts jobs."""

import re
import subprocess
import sys
from pathlib import Path

import elastic

ROOT = Path(elastic.__file__).parents[1]
SCRIPT = """\
from pathlib import Path

import elastic
from elastic.api import JobKeywords

job = elastic.train(
    platform="local", model_zoo=Path("zoo"), model_def="m.M", training_data="data",
    minibatch_size=32, num_workers="1:2", model_params={"hidden": 64}, use_async=True,
    evaluation_data=None, evaluation_throttle_secs=2,
)
shared: JobKeywords = {"platform": "local", "minibatch_size": 32}
accuracy: float = elastic.evaluate(**shared, model="m.keras").wait().metrics["accuracy"]
elastic.train(num_worker=2)
elastic.train(minibatch_size="many")
elastic.evaluate(num_epochs=2)
elastic.train(platform="lokal")
job.scale("2")
"""
WRONG = {
    13: 'Unexpected keyword argument "num_worker"',
    14: 'Argument "minibatch_size" to "train" has incompatible type "str"',
    15: 'Unexpected keyword argument "num_epochs" for "evaluate"',
    16: """Argument "platform" to "train" has incompatible type "Literal['lokal']\"""",
    17: 'Argument 1 to "scale" of "Job" has incompatible type "str"',
}


def test_a_type_checker_knows_the_keywords_of_every_kind_of_job(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(script)], cwd=ROOT, capture_output=True,
        text=True,
    )  # fmt: skip
    found = dict(re.findall(r"script\.py:(\d+): error: (.*)", done.stdout))
    assert [int(line) for line in found] == list(WRONG), done.stdout + done.stderr
    for line, words in WRONG.items():
        assert found[str(line)].startswith(words)
