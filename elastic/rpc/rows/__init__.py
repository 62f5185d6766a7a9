"""Rows of embeddings on the wire, and handed over in memory."""
