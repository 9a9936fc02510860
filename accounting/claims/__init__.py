r"""Claims: what is promised, as data: pure, zCDP, Renyi, (epsilon, delta), and bounds on them."""
