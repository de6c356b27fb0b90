"""What MXNet keeps outside the pool: copies, workspaces, a GPU's pool, optimizer state."""
