"""The CUDA libraries that mxnet-cu112 1.9.1 needs, and where they come from."""
from __future__ import annotations

#: Library to the package on PyPI that supplies it, in a release that completes the wheel.
PACKAGES = {
    "libcudnn": "nvidia-cudnn-cu11==8.9.6.50",
    "libcublas": "nvidia-cublas-cu11==11.11.3.6",
    "libcudart": "nvidia-cuda-runtime-cu11==11.8.89",
    "libnvrtc": "nvidia-cuda-nvrtc-cu11==11.8.89",
    "libcurand": "nvidia-curand-cu11==10.3.0.86",
    "libcufft": "nvidia-cufft-cu11==10.9.0.58",
    "libcusolver": "nvidia-cusolver-cu11==11.4.1.48",
    "libcusparse": "nvidia-cusparse-cu11==11.7.5.86",
    "libnccl": "nvidia-nccl-cu11==2.21.5",
    "libnvToolsExt": "nvidia-nvtx-cu11==11.8.86",
}


def advice(message: str) -> str:
    """What to do when the loader misses a library; "" when it is none of these."""
    library = message.partition(".so")[0].rpartition(" ")[2]
    if library == "libcuda":
        return ("mxnet-cu112 needs the NVIDIA driver, which supplies libcuda.so.1; without a GPU: "
                "pip install mxnet==1.9.1")
    if library not in PACKAGES:
        return ""
    return ("pip install %s, and put the folders site-packages/nvidia/*/lib into LD_LIBRARY_PATH "
            "before Python starts (docs/gpu.md)" % PACKAGES[library])
