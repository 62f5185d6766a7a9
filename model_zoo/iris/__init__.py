"""Iris flowers in CSV files: `iris_keras` and `iris_torch`."""
