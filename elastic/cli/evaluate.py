"""`elastic evaluate`."""

from elastic.cli.job_command import job_command
from elastic.spec.kinds import JobKind

_HELP = """\
Evaluate a trained model as an elastic job and show its metrics when it ends.

Each record counts once, whoever dies, and the metrics are those of all records
at once. The parameters are those of a checkpoint (--init_from) or of an
exported model (--model).

FOLDER gives what no flag does, as to `elastic train`; without --init_from and
--model, the parameters are those that its training has exported.

Ctrl-C stops a job of this machine, and lets one in a cluster go on; so do
SIGTERM and a closed terminal. With --detach either goes on without you.
"""

_EPILOG = """\b
Flags win over the file of --config, that over the FOLDER, that over the
defaults.
\b
Examples:
  elastic evaluate flowers
  elastic evaluate --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --model=mnist.safetensors \\
      --evaluation_data_dir=data/test --minibatch_size=64 --num_workers=2
"""

command = job_command(JobKind.EVALUATE, _HELP, _EPILOG)
