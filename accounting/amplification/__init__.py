r"""Privacy amplification: subsampling, random allocation and shuffling."""
