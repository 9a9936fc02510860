r"""Run audited code in other processes that return only data, so that crashes are contained.

child_process      one isolated process: requests, answers, its time limit and its end
sandboxed_target   targets and feature maps in such a process
parallel_jobs      draw blocks in this process, in several, or on a cluster
"""
