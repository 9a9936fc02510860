r"""Laws: every noise on the integers, with its masses, tails and sampler."""
