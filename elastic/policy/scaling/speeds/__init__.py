"""How fast jobs are at sizes, learned from what they tell, and what a size is worth. Pure."""
