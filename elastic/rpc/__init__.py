"""The wire: stubs, authentication, chunked tensors, and messages turned into dataclasses."""
