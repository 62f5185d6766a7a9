"""What a job shows: progress in a terminal, event files, metrics."""
