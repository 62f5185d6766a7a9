"""Tumours in CSV files: `breast_cancer_keras` and `breast_cancer_torch`."""
