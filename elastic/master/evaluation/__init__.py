"""Versions evaluated while training goes on, the callbacks that are told, the best version."""
