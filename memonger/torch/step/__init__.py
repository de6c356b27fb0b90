"""One compiled module: its graphs, their plans, and the code that keeps the budget."""
