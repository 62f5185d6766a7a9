"""Commands about many jobs and the cluster they share: its policies, and what has to be there."""
