"""Where the parameters live, and what is given to them: the seam, and its first strategy."""
