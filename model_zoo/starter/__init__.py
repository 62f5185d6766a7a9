"""The first model of one's own, every symbol explained: `starter_keras` and `starter_torch`."""
