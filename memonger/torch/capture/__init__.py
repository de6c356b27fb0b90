"""From PyTorch's joint graph of a training step to the graph that planning works on."""
