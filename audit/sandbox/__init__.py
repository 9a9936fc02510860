r"""Run audited code in other processes that return only data, so that crashes are contained.

answers   the result of a piece of work, as data
pipe      the child's end: requests, answers, and shared memory with the running call
process   one isolated process, its time limit and its end
sandbox   targets and feature maps in such a process
worker    a block drawn by one of several processes, or on a cluster
jobs      draw the blocks in this process, in several, or on a cluster
"""
