"""What PyTorch is asked beneath its public calls, and what its tensors and modules hold."""
