"""What is done before the first record is handed out, and how far that has come."""
