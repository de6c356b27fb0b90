"""Linear and 0/1 programs: bounds, and plans rounded from them."""
