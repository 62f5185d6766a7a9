"""The kinds of jobs: what is there, in; what is to be done and told, out. Pure."""
