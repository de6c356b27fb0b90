"""Language models of transformers, in a few layers of their own configurations."""
from __future__ import annotations

from typing import Any, Dict, Tuple

import torch

WORDS, WIDTH, BATCH, LENGTH = 128, 64, 4, 64
#: Words that stand for what a sentence begins and ends with.
_MARKS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_DECODER = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
_ENCODER = {"hidden_size": WIDTH, "intermediate_size": 2 * WIDTH, "num_hidden_layers": 2,
            "num_attention_heads": 4, "max_position_embeddings": 130}
_EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
_WINDOW = {"sliding_window": 32}
_PLAIN = {"hidden_size": WIDTH, "num_hidden_layers": 2, "num_attention_heads": 4}
_HEADS = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
          "decoder_attention_heads": 4, "encoder_ffn_dim": 2 * WIDTH,
          "decoder_ffn_dim": 2 * WIDTH}

#: Class of each model, without "Config" and its task, and what its configuration is given.
CAUSAL: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "gpt2": ("GPT2", {"n_embd": WIDTH, "n_layer": 2, "n_head": 4, "n_positions": 128}),
    "llama": ("Llama", _DECODER),
    "mistral": ("Mistral", {**_DECODER, **_WINDOW}),
    "qwen2": ("Qwen2", _DECODER),
    "qwen3": ("Qwen3", {**_DECODER, "head_dim": 16}),
    "gemma2": ("Gemma2", {**_DECODER, **_WINDOW, "head_dim": 16}),
    "phi3": ("Phi3", _DECODER),
    "olmo2": ("Olmo2", _DECODER),
    "mixtral": ("Mixtral", {**_DECODER, "num_local_experts": 4}),
    "qwen3_moe": ("Qwen3Moe", {**_DECODER, **_EXPERTS, "head_dim": 16, "num_experts": 4}),
    "deepseek_v3": ("DeepseekV3", {
        **_DECODER, **_EXPERTS, "num_key_value_heads": 4, "n_shared_experts": 1,
        "n_routed_experts": 8, "kv_lora_rank": 16, "q_lora_rank": 32, "qk_rope_head_dim": 8,
        "v_head_dim": 16, "qk_nope_head_dim": 16, "n_group": 2, "topk_group": 1,
        "first_k_dense_replace": 1}),
    "gpt_oss": ("GptOss", {**_DECODER, **_WINDOW, "num_local_experts": 4, "head_dim": 16,
                           "num_experts_per_tok": 2}),
    "falcon": ("Falcon", _PLAIN),
    "opt": ("OPT", {**_PLAIN, "ffn_dim": 2 * WIDTH, "max_position_embeddings": 128,
                    "word_embed_proj_dim": WIDTH}),
    "bloom": ("Bloom", {"hidden_size": WIDTH, "n_layer": 3, "n_head": 4}),
    "mamba2": ("Mamba2", {"hidden_size": WIDTH, "num_hidden_layers": 2, "state_size": 16,
                          "num_heads": 8, "head_dim": 16, "n_groups": 2, "chunk_size": 16}),
}
MASKED: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "bert": ("Bert", _ENCODER),
    "roberta": ("Roberta", _ENCODER),
    "deberta_v2": ("DebertaV2", {
        **_ENCODER, "relative_attention": True, "position_buckets": 16, "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"], "max_relative_positions": -1,
        "norm_rel_ebd": "layer_norm"}),
    "albert": ("Albert", {**_ENCODER, "embedding_size": 32}),
    "distilbert": ("DistilBert", {"dim": WIDTH, "hidden_dim": 2 * WIDTH, "n_layers": 3,
                                  "n_heads": 4, "max_position_embeddings": 128}),
    "modernbert": ("ModernBert", {**_ENCODER, "cls_token_id": 1, "sep_token_id": 2,
                                  "local_attention": 32}),
    "longformer": ("Longformer", {**_ENCODER, "attention_window": 16}),
}
#: The same, and the input beside the sentence to write.
PAIRED: Dict[str, Tuple[str, Dict[str, Any]]] = {
    "t5": ("T5", {"d_model": WIDTH, "d_kv": 16, "d_ff": 2 * WIDTH, "num_layers": 2,
                  "num_heads": 4, "decoder_start_token_id": 0}),
    "bart": ("Bart", {**_HEADS, "d_model": WIDTH, "max_position_embeddings": 128,
                      "decoder_start_token_id": 2, "forced_eos_token_id": 2}),
    "whisper": ("Whisper", {**_HEADS, "d_model": WIDTH, "num_mel_bins": 16,
                            "max_source_positions": 64, "max_target_positions": 64,
                            "decoder_start_token_id": 1, "suppress_tokens": None,
                            "begin_suppress_tokens": None}),
}


def words(*shape: int) -> torch.Tensor:
    """Words that are no marks."""
    return torch.randint(3, WORDS, shape or (BATCH, LENGTH))


def _of(name: str, task: str, config: Dict[str, Any]) -> Any:
    import transformers
    made = getattr(transformers, name + "Config")(
        vocab_size=WORDS, **{**_MARKS, "use_cache": False, **config})
    return getattr(transformers, name + task)(made)


def causal(name: str) -> Tuple[Any, Any]:
    """A model that goes on with a sentence."""
    made, sentence = _of(CAUSAL[name][0], {"GPT2": "LMHeadModel"}.get(
        CAUSAL[name][0], "ForCausalLM"), CAUSAL[name][1]), words()
    return made, {"input_ids": sentence, "labels": sentence.clone()}


def masked(name: str) -> Tuple[Any, Any]:
    """A model that fills in words; one sentence is shorter."""
    sentence = words()
    mask = torch.ones_like(sentence)
    mask[1, 50:] = 0
    return _of(MASKED[name][0], "ForMaskedLM", MASKED[name][1]), {
        "input_ids": sentence, "attention_mask": mask, "labels": sentence.clone()}


def paired(name: str) -> Tuple[Any, Any]:
    """A model that makes a sentence of another one, or of sound."""
    given = {"input_features": torch.randn(BATCH, 16, 128)} if name == "whisper" else \
        {"input_ids": words()}
    return _of(PAIRED[name][0], "ForConditionalGeneration", PAIRED[name][1]), {
        **given, "labels": words(BATCH, 32)}
