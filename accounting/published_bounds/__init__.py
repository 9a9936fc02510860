r"""Published bounds on the privacy of noise, used for comparison and calibration."""
