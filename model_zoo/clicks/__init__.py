"""Clicks on advertisements: DeepFM and Wide & Deep, whose tables of embeddings no worker holds."""
