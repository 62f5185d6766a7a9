"""Handwritten digits of 28x28 pixels with subclassed models: `mnist_subclass` and `mnist_torch`."""
