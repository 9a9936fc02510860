r"""A proof checker for certificates: integers, the standard library, and nothing else."""
