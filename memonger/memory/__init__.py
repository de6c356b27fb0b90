"""Which tensors live when, and where in memory."""
