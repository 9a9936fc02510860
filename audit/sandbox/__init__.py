r"""Run audited code in other processes that return only data, so that a crash is contained.

answers   how a piece of work ended, as data
pipe      the far end: requests, answers, and memory that shows which call is running
process   one isolated process, its time limit and its end
sandbox   targets and feature maps in such a process
worker    a block drawn by one of several processes, or on a cluster
jobs      who draws the blocks: this process, several, or a cluster
"""
