"""Tests of audits on a Dask cluster: the report of one job; unsupported options are refused."""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

from audit.sample_layer import sample
from audit.sandbox.parallel_jobs import dask_cluster
from audit.targets.target_syntax import read_target
from tests.audit.sandbox.test_parallel_jobs import AWK, plan

pytestmark = pytest.mark.nightly  # a cluster takes seconds to start


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    if importlib.util.find_spec("distributed") is None:
        pytest.skip("distributed is not installed: pip install 'dpcore[cluster]'")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from distributed import LocalCluster

        make: Any = LocalCluster  # Dask has no type annotations
        with make(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as made:
            yield str(made.scheduler_address)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("here")
def test_a_dask_cluster_gives_the_report_of_one_job(cluster: str) -> None:
    target = read_target("targets.py:laplace")
    for sequential in (False, True):
        one = sample(target, plan(runs=20_000, sequential=sequential, timeout=None))
        many = plan(runs=20_000, sequential=sequential, timeout=None, jobs=-1)
        with dask_cluster(cluster):
            assert sample(target, many).to_text() == one.to_text()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.usefixtures("here")
def test_on_a_dask_cluster_failures_are_kept_and_missing_limits_said(cluster: str) -> None:
    with dask_cluster(cluster):
        report = sample(read_target("targets.py:raises_late"), plan(runs=50_000, jobs=-1))
    assert report.error is not None
    assert report.error.reason.startswith("raised MemoryError: too many")
    assert report.runs == 17_246
    assert "drawn in threads: calls of the target had no time limit" in report.warnings
    with dask_cluster(cluster):
        program = sample(read_target(AWK), plan(runs=100, jobs=-1))
    assert program.error is None
    assert not program.warnings


@pytest.mark.filterwarnings("ignore")
def test_a_joblib_configuration_of_one_s_own_is_kept_to(cluster: str) -> None:
    from distributed import Client
    from joblib import parallel_config

    target = read_target("discrete-laplace:scale=1")
    connect: Any = Client
    with connect(cluster, set_as_default=False) as client:
        before = len(client.run(os.getpid))
        with parallel_config(backend="dask", client=client):
            report = sample(target, plan(jobs=-1, timeout=None))
    assert before == 2
    assert report.to_text() == sample(target, plan(timeout=None)).to_text()
