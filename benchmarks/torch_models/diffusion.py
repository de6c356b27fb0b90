"""Models of diffusers: what removes noise, and what packs pictures."""
from __future__ import annotations

from typing import Any, Callable, Dict, Tuple

import torch

Made = Tuple[Any, Any]


def _unet() -> Made:
    from diffusers import UNet2DConditionModel
    net = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, block_out_channels=(16, 32),
        layers_per_block=1, cross_attention_dim=16, attention_head_dim=4, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"))
    return net, {"sample": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 700]),
                 "encoder_hidden_states": torch.randn(2, 8, 16)}


def _vae() -> Made:
    from diffusers import AutoencoderKL
    net = AutoencoderKL(
        block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4, latent_channels=4,
        sample_size=32, down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2)
    return net, {"sample": torch.randn(2, 3, 32, 32), "sample_posterior": True}


def _dit() -> Made:
    from diffusers import DiTTransformer2DModel
    net = DiTTransformer2DModel(
        num_attention_heads=4, attention_head_dim=16, in_channels=4, out_channels=8,
        num_layers=2, sample_size=16, patch_size=2, num_embeds_ada_norm=10, norm_num_groups=4)
    return net, {"hidden_states": torch.randn(2, 4, 16, 16), "timestep": torch.tensor([3, 700]),
                 "class_labels": torch.tensor([1, 2])}


def _flux() -> Made:
    from diffusers import FluxTransformer2DModel
    net = FluxTransformer2DModel(
        patch_size=1, in_channels=4, num_layers=1, num_single_layers=2, attention_head_dim=16,
        num_attention_heads=4, joint_attention_dim=32, pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8))
    return net, {"hidden_states": torch.randn(2, 64, 4),
                 "encoder_hidden_states": torch.randn(2, 16, 32),
                 "pooled_projections": torch.randn(2, 32), "timestep": torch.tensor([0.1, 0.7]),
                 "img_ids": torch.zeros(64, 3), "txt_ids": torch.zeros(16, 3)}


def _sd3() -> Made:
    from diffusers import SD3Transformer2DModel
    net = SD3Transformer2DModel(
        sample_size=16, patch_size=2, in_channels=4, num_layers=2, attention_head_dim=16,
        num_attention_heads=4, joint_attention_dim=32, caption_projection_dim=64,
        pooled_projection_dim=32, out_channels=4, pos_embed_max_size=16)
    return net, {"hidden_states": torch.randn(2, 4, 16, 16),
                 "encoder_hidden_states": torch.randn(2, 16, 32),
                 "pooled_projections": torch.randn(2, 32), "timestep": torch.tensor([3, 700])}


DIFFUSERS: Dict[str, Callable[[], Made]] = {
    "unet": _unet, "vae": _vae, "dit": _dit, "flux": _flux, "sd3": _sd3}
