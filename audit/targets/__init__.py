r"""Targets: functions, programs, laws and protocols that an audit can run."""
