r"""Learn scores of outputs from earlier runs: learned witnesses that tell two datasets apart."""
