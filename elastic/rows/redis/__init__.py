"""Rows in Redis: one server, or a Redis Cluster in parts."""
