"""What each kind of job does from its preparation to its result."""
