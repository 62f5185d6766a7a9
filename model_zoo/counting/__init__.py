"""Models that count how often each record was trained on: `counting_keras`, `counting_torch`."""
