"""In place of FlashInfer: the names that SGLang imports even where another backend is chosen."""

__version__ = "0.6.15.post1"


def absent(*args, **kwargs):
    raise RuntimeError("FlashInfer was called, but was not carried here: choose another backend")


bmm_fp8 = absent
