"""Names of FlashInfer's prefill kernels; none can be called."""

from flashinfer import absent

cudnn_batch_prefill_with_kv_cache = absent
