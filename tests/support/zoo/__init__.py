"""Models for tests of failing jobs; `--model_zoo` of those jobs."""
