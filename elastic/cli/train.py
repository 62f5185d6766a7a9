"""`elastic train`."""

from elastic.cli.job_command import job_command
from elastic.spec.kinds import JobKind

_HELP = """\
Train a model as an elastic job and show its progress until it ends.

FOLDER holds the model: the settings that no flag gives are those of its
elastic.yaml, or found there (the one model, data/train.*), and what was found
is told. Without a FOLDER, flags or a job file say all.

Ctrl-C stops a job of this machine, and lets one in a cluster go on; so do
SIGTERM and a closed terminal. With --detach either goes on without you. A
flag that takes a BOOL means true when it stands alone, and --no_FLAG false.
"""

_EPILOG = """\b
Flags win over the file of --config, that over the FOLDER, that over the
defaults.
\b
Examples:
  elastic train flowers --num_epochs=5
  elastic train --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --training_data_dir=data/train \\
      --minibatch_size=64 --num_workers=2:4 --num_epochs=3
  elastic train --config job.yaml --num_epochs=5 --dry_run
"""

command = job_command(JobKind.TRAIN, _HELP, _EPILOG)
