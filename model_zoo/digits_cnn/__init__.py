"""Handwritten digits with augmentation and batch norm: `digits_cnn_keras`, `digits_cnn_torch`."""
