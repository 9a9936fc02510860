r"""Analysis: the sums and integrals from which laws get proven masses and tails."""
