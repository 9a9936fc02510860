r"""Test a claim on outputs, and bound epsilon from below with a stated confidence.

prequential_fixed_runs_test    a lower bound on epsilon from a fixed number of runs
anytime_valid_test             a test of the runs as they are drawn, which may stop early
choose_event                   learn the event that distinguishes the datasets
event                          events: their cells, their wording, and the witness in a report
multiple_testing               one level for all points, pairs and features
sample_outcome                 the verdict, and what the test could measure
trace                          epsilon_lower as a function of the number of runs, for a plot
one_run_canaries               bounds from one run with many canaries
clopper_pearson_and_baselines  other methods' bounds, for comparison
"""
