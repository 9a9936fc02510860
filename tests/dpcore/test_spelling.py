r"""A noise that is spelled as elsewhere is refused with the spelling that was meant, exactly."""

import pytest

from dpcore.errors import InvalidParameter
from dpcore.spelling import LAWS, read_noise, write_noise

MEANT = {
    "discrete-gaussian:sigma=1.1": "discrete-gaussian:sigma_squared=1.21",
    "gaussian:sigma=1": "discrete-gaussian:sigma_squared=1",
    "gaussian:scale=1/3": "discrete-gaussian:sigma_squared=1/9",
    "normal:variance=0.3": "discrete-gaussian:sigma_squared=0.3",
    "laplace:scale=1": "discrete-laplace:scale=1",
    "laplace:b=0.3": "discrete-laplace:scale=0.3",
    "Laplace:Scale=1e-9": "discrete-laplace:scale=1e-9",
    "discrete_laplace:scale=3": "discrete-laplace:scale=3",
    "discrete-laplace:scal=2": "discrete-laplace:scale=2",
    "discrete-laplace:10": "discrete-laplace:scale=10",
    "laplace": "discrete-laplace:scale=...",
    "skellam:sigma=1e-3": "skellam:variance=1e-6",
    "skelam:variance=4": "skellam:variance=4",
    "poisson:lambda=3": "poisson:mean=3",
    "binomial:n=5,p=1/3": "binomial:trials=5,probability=1/3",
    "polya-diference:shape=1,scale=2": "polya-difference:shape=1,scale=2",
    "discrete-gaussian-sum:n=16,sigma=2": "discrete-gaussian-sum:count=16,sigma_squared=4",
}
NOT_TOLD = (
    "foo:x=1",
    "cauchy:scale=1",
    "laplace:scale=-1",
    "discrete-gaussian:sigma=-1.1",
    "gaussian:sigma=1,std=2",
    "gaussian:sigma=nan",
    "gaussian:sigma=1e3000",
    "binomial:n=5/2,p=1/3",
    "discrete-laplace:scale=0",
)


@pytest.mark.parametrize(("typed", "meant"), MEANT.items())
def test_what_was_meant_is_told(typed: str, meant: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_noise(typed)
    assert str(refused.value).endswith(f"; did you mean {meant}?")
    if "..." not in meant:
        assert read_noise(meant).name in LAWS


@pytest.mark.parametrize("typed", NOT_TOLD)
def test_what_cannot_be_told_is_not_guessed(typed: str) -> None:
    with pytest.raises(InvalidParameter) as refused:
        read_noise(typed)
    assert "did you mean" not in str(refused.value)


def test_a_noise_that_is_spelled_right_is_read() -> None:
    assert write_noise(read_noise("discrete-gaussian:sigma_squared=1.21")).endswith("=1.21")
