r"""The sources of randomness, and exact samplers that use their random bits."""
