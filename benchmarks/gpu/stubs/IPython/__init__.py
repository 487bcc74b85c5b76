"""In place of IPython, from which SGLang takes two names for notebooks."""
