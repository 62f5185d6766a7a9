"""Commands about jobs: they begin them, show them, size and end them, and look at what is left."""
