"""`elastic predict`."""

from elastic.cli.job_command import job_command
from elastic.spec.kinds import JobKind

_HELP = """\
Compute the predictions of a trained model as an elastic job.

Each record has its prediction once, whoever dies: one file for every range of
records, which is there whole or not at all, and a _manifest.json that is
written when all of them are. The parameters are those of a checkpoint
(--init_from) or of an exported model (--model). A PredictionOutputsProcessor
in the model_def takes the predictions instead of the files.

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
  elastic predict flowers
  elastic predict --platform local --model_zoo=model_zoo \\
      --model_def=mnist.CustomModel --init_from=checkpoints \\
      --prediction_data_dir=data/new --prediction_outputs=predictions \\
      --minibatch_size=64 --num_workers=2:4
"""

command = job_command(JobKind.PREDICT, _HELP, _EPILOG)
