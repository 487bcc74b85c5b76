"""Names of FlashInfer's sampling kernels; none can be called."""

from flashinfer import absent

min_p_sampling_from_probs = absent
softmax = absent
top_k_renorm_prob = absent
top_k_top_p_sampling_from_logits = absent
top_k_top_p_sampling_from_probs = absent
top_p_renorm_prob = absent
