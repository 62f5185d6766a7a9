"""One process that computes gradients for whatever task it is given."""
