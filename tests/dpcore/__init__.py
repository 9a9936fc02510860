"""Tests of the package `dpcore`."""
