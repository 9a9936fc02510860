r"""Parse the outputs of an audited mechanism, and compare them exactly.

time_limit        limit the time of calls, load audited code, redirect what it prints to stderr
output_parser     join outputs in run order, and warn about unusual outputs
reading           order numbers exactly, and distinguish other values by their identity
identity          the type and exact value of an output as text
rows              an output as a row of a table: its structure and its cells
tables            pandas, polars and Arrow tables as plain data
copies            copies of the inputs and outputs of a call
serialise         outputs as bytes, without loss and without pickle
sandbox_encoding  values that are sent between the auditor and a sandbox
"""
