r"""Test privacy claims on sampled outputs, and compute lower confidence bounds on epsilon.

prequential_fixed_runs_test          a test with a number of runs fixed beforehand
anytime_valid_test                   a test of the runs as they are drawn, which may stop early
choose_event                         learn which dataset to guess from an output
event                                events (sets of outputs) and their description in reports
multiple_testing                     many tests of one claim at one significance level
sample_outcome                       the verdict, and whether the tests measured anything
trace                                epsilon_lower as a function of the number of runs, for a plot
one_run_canaries                     bounds from one run with many canaries
clopper_pearson_and_other_baselines  bounds of other methods, for comparison
"""
