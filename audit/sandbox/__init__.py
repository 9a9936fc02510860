r"""Run audited code in other processes that return only data, so that crashes are contained.

child_process      an isolated process: its requests and answers, its time limit and its end
sandboxed_target   targets and feature maps that run in an isolated process
parallel_jobs      draw blocks in this process, in several processes, or on a cluster
"""
