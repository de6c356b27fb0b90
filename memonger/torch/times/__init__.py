"""What the ops of a step take on this device, measured and kept."""
