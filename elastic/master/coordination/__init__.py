"""Who works on what, and how gradients become versions: sessions, tasks, updates, rounds."""
