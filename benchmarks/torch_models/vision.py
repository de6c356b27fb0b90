"""Models of pictures, videos and sound: timm, torchvision and transformers."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import torch

from .language import LENGTH, WIDTH, WORDS, words

_VIT = {"img_size": 64, "patch_size": 8, "embed_dim": 64, "depth": 3, "num_heads": 4}
#: Of timm: the model, its options, and the pictures' batch and size.
TIMM: Dict[str, Tuple[str, Dict[str, Any], int, int]] = {
    "resnet50": ("resnet50", {"layers": (1, 1, 1, 1)}, 4, 64),
    "efficientnet": ("efficientnet_b0", {"drop_path_rate": 0.2}, 8, 64),
    "mobilenetv3": ("mobilenetv3_small_050", {}, 4, 64),
    "mobilenetv4": ("mobilenetv4_conv_small_050", {}, 4, 64),
    "convnext": ("convnext_atto", {"drop_path_rate": 0.1, "depths": (1, 1, 2, 1),
                                   "dims": (16, 32, 48, 64)}, 4, 64),
    "swin": ("swin_tiny_patch4_window7_224", {
        "img_size": 64, "window_size": 4, "embed_dim": 24, "depths": (2, 2),
        "num_heads": (2, 4)}, 4, 64),
    "vit": ("vit_tiny_patch16_224", _VIT, 4, 64),
    "mixer": ("mixer_s16_224", {"img_size": 64}, 4, 64),
    "regnet": ("regnety_002", {"drop_path_rate": 0.1}, 4, 64),
    "nfnet": ("dm_nfnet_f0", {}, 2, 64),
    "levit": ("levit_128s", {}, 2, 224),
    "coatnet": ("coatnet_nano_rw_224", {"img_size": 64}, 4, 64),
    "maxvit": ("maxvit_pico_rw_256", {"img_size": 64}, 4, 64),
    "densenet": ("densenet121", {"growth_rate": 8, "block_config": (3, 3, 3, 3)}, 4, 64),
    "inception": ("inception_v3", {}, 2, 80),
    "xcit": ("xcit_nano_12_p16_224", {"img_size": 64, "depth": 3, "embed_dim": 64,
                                      "num_heads": 4}, 4, 64),
    "beit": ("beit_base_patch16_224", _VIT, 4, 64),
    "eva02": ("eva02_tiny_patch14_224", {**_VIT, "img_size": 56, "patch_size": 7}, 4, 56),
    "hrnet": ("hrnet_w18_small", {}, 2, 64),
    "fastvit": ("fastvit_t8", {}, 2, 64),
}
_BACKBONES = {"weights": None, "weights_backbone": None, "num_classes": 5}
#: Of torchvision: its module, the model, its options, and the shape of the input.
TORCHVISION: Dict[str, Tuple[str, str, Dict[str, Any], Tuple[int, ...]]] = {
    "googlenet": ("models", "googlenet", {"weights": None, "num_classes": 10,
                                          "init_weights": False}, (2, 3, 96, 96)),
    "shufflenet": ("models", "shufflenet_v2_x0_5", {"num_classes": 10}, (4, 3, 64, 64)),
    "deeplabv3": ("models.segmentation", "deeplabv3_mobilenet_v3_large",
                  {**_BACKBONES, "aux_loss": True}, (2, 3, 64, 64)),
    "lraspp": ("models.segmentation", "lraspp_mobilenet_v3_large", _BACKBONES, (2, 3, 64, 64)),
    "r3d": ("models.video", "r3d_18", {"weights": None, "num_classes": 5}, (1, 3, 4, 32, 32)),
    "faster_rcnn": ("models.detection", "fasterrcnn_mobilenet_v3_large_320_fpn",
                    {**_BACKBONES, "min_size": 64, "max_size": 64}, (3, 64, 64)),
    "retinanet": ("models.detection", "retinanet_resnet50_fpn",
                  {**_BACKBONES, "min_size": 64, "max_size": 64}, (3, 64, 64)),
    "raft": ("models.optical_flow", "raft_small", {"weights": None}, (1, 3, 128, 128)),
}
_SEEN = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2,
         "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
_HEARD = {"vocab_size": 32, "hidden_size": WIDTH, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 2 * WIDTH, "conv_dim": (32, 32, 32),
          "conv_stride": (5, 4, 2), "conv_kernel": (10, 8, 4), "num_feat_extract_layers": 3,
          "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
#: Of transformers: the model's class, and what its configuration is given.
SEEN: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "hf_vit": ("ViTForImageClassification", _SEEN),
    "dinov2": ("Dinov2ForImageClassification", {**_SEEN, "mlp_ratio": 2,
                                                "drop_path_rate": 0.1}),
    "convnextv2": ("ConvNextV2ForImageClassification", {
        "hidden_sizes": [16, 24, 32, 48], "depths": [1, 1, 2, 1], "drop_path_rate": 0.1}),
    "segformer": ("SegformerForSemanticSegmentation", {
        "num_encoder_blocks": 4, "depths": [1, 1, 1, 1], "hidden_sizes": [16, 16, 32, 32],
        "num_attention_heads": [1, 2, 2, 4], "decoder_hidden_size": 32, "num_labels": 7}),
    "videomae": ("VideoMAEForVideoClassification", {**_SEEN, "num_frames": 4,
                                                    "tubelet_size": 2, "num_labels": 5}),
    "timesformer": ("TimesformerForVideoClassification", {**_SEEN, "num_frames": 4,
                                                          "num_labels": 5}),
    "wav2vec2": ("Wav2Vec2ForCTC", {**_HEARD, "pad_token_id": 0, "bos_token_id": 1,
                                    "eos_token_id": 2}),
    "hubert": ("HubertModel", {**_HEARD, "apply_spec_augment": False, "layerdrop": 0.0}),
}


def timm(name: str) -> Tuple[Any, Any]:
    """A model of timm with a batch of pictures."""
    import timm as package
    model, options, batch, size = TIMM[name]
    return package.create_model(model, pretrained=False, num_classes=10, **options), (
        torch.randn(batch, 3, size, size),)


def torchvision(name: str) -> Tuple[Any, Any]:
    """A model of torchvision; detection has boxes, flow two pictures."""
    import importlib
    place, model, options, shape = TORCHVISION[name]
    net = getattr(importlib.import_module("torchvision." + place), model)(**options)
    if place.endswith("detection"):
        corners = torch.rand(2, 3, 2) * 30
        boxes = torch.cat([corners, corners + 20], 2)
        return net, ([torch.rand(*shape) for _ in range(2)], [
            {"boxes": b, "labels": torch.randint(1, 5, (3,))} for b in boxes])
    if name == "raft":
        return net, {"image1": torch.randn(*shape), "image2": torch.randn(*shape),
                     "num_flow_updates": 2}
    return net, (torch.randn(*shape),)


def seen(name: str) -> Tuple[Any, Any]:
    """A model of transformers that sees pictures or videos, or hears."""
    import transformers
    cls, config = SEEN[name]
    model = getattr(transformers, cls)
    net = model(model.config_class(**config))
    if name in ("wav2vec2", "hubert"):
        labels = {"labels": torch.randint(3, 32, (2, 12))} if name == "wav2vec2" else {}
        return net, {"input_values": torch.randn(2, 4000), **labels}
    if name == "segformer":
        return net, {"pixel_values": torch.randn(2, 3, 64, 64),
                     "labels": torch.randint(0, 7, (2, 64, 64))}
    size = 64 if name == "convnextv2" else 32
    shape = (2, 4, 3, 32, 32) if "video" in cls.lower() else (4, 3, size, size)
    return net, {"pixel_values": torch.randn(*shape),
                 "labels": torch.randint(0, 2, (shape[0],))}


def clip(name: str) -> Tuple[Any, Any]:
    """Pictures and their sentences."""
    import transformers
    config = transformers.CLIPConfig(
        text_config={"vocab_size": WORDS, **_SEEN, "max_position_embeddings": LENGTH // 2,
                     "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2},
        vision_config=_SEEN, projection_dim=32)
    return transformers.CLIPModel(config), {
        "input_ids": words(4, LENGTH // 2), "pixel_values": torch.randn(4, 3, 32, 32),
        "return_loss": True}


def detr(name: str) -> Tuple[Any, Any]:
    """Boxes of a picture, matched to the true ones outside the graph."""
    import transformers
    backbone = transformers.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32],
                                         depths=[1, 1], out_features=["stage2"])
    config = transformers.DetrConfig(
        use_timm_backbone=False, backbone_config=backbone, backbone=None,
        use_pretrained_backbone=False, num_queries=10, d_model=32, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=4, decoder_attention_heads=4,
        encoder_ffn_dim=64, decoder_ffn_dim=64, num_labels=5)
    return transformers.DetrForObjectDetection(config), {
        "pixel_values": torch.randn(2, 3, 64, 64), "labels": [
            {"class_labels": torch.randint(0, 5, (3,)), "boxes": torch.rand(3, 4) * 0.4 + 0.2}
            for _ in range(2)]}
