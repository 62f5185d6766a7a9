"""What the master tells: status, the account of time, curves and metrics, the commit log."""
