"""Handwritten digits of 8x8 pixels: `digits_keras` and `digits_torch`."""
