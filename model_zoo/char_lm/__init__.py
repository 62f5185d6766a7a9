"""A small causal transformer over the bytes of source text: `char_lm_keras` and `char_lm_torch`."""
