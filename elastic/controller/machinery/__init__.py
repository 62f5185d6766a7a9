"""What is the same for every kind: what is watched, when one looks, and how it is written."""
