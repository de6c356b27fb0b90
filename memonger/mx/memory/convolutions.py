"""Where convolutions keep their weight."""
from __future__ import annotations

#: Position of the weight among the inputs, of the operator and of its gradient. The gradient's
#: first input is that of the output.
WEIGHT = {"Convolution": (1, 2), "memonger_split_convolution": (1, 2),
          "memonger_split_convolution_weight": (1, 2), "memonger_split_convolution_data": (1, 1),
          "memonger_bn_relu_convolution": (5, 8)}
#: The one that runs its batch in parts.
IN_PARTS = "memonger_bn_relu_convolution"
