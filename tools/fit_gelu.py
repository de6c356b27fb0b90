"""The polynomials of plugins/ops/cuda/gelu.cu, fitted: prints each with its largest error.

    python tools/fit_gelu.py

Least squares with Lawson's weights (C. L. Lawson, 1961), which come to the polynomial whose largest
error is least. Takes half a minute; needs NumPy alone.
"""
from __future__ import annotations

import math
from typing import Sequence, Tuple

import numpy as np

MINIMUM = -0.75179152469356447
ROUNDS = 600
_erfc = np.vectorize(math.erfc)


def density(x: np.ndarray) -> np.ndarray:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def tail(t: np.ndarray) -> np.ndarray:
    """The normal distribution's share above ``t``."""
    return 0.5 * _erfc(t / math.sqrt(2))


def gelu(x: np.ndarray) -> np.ndarray:
    return x * tail(-x)


def derivative(x: np.ndarray) -> np.ndarray:
    return tail(-x) + x * density(x)


def above_minimum(x: np.ndarray) -> np.ndarray:
    """gelu(x) - gelu(MINIMUM); next to the minimum the derivative's integral, by Gauss's rule."""
    u = x - MINIMUM
    points, weights = np.polynomial.legendre.leggauss(40)
    integral = (derivative(MINIMUM + u[:, None] * (points + 1) / 2) * weights).sum(1) * u / 2
    return np.where(np.abs(u) < 0.5, integral, gelu(x) - gelu(np.array(MINIMUM)))


def minimax(columns: np.ndarray, values: np.ndarray,
            weights: np.ndarray) -> Tuple[float, np.ndarray]:
    """Coefficients of the columns, and the largest weighted error."""
    best = math.inf, np.zeros(columns.shape[1])
    shares = np.full(len(values), 1.0 / len(values))
    for _ in range(ROUNDS):
        scale = np.sqrt(shares) * weights
        found = np.linalg.lstsq(columns * scale[:, None], values * scale, rcond=1e-15)[0]
        errors = np.abs(columns @ found - values) * weights
        best = min(best, (float(errors.max()), found), key=lambda item: item[0])
        shares = shares * (errors + 1e-30)
        shares /= shares.sum()
    return best


def show(name: str, error: float, coefficients: Sequence[float]) -> None:
    print("%s, error %.1e:\n  %s" % (name, error, ", ".join(
        "%.9e" % value for value in coefficients[::-1])))


def main() -> None:
    points = np.cos(np.pi * (np.arange(1500) + 0.5) / 1500)
    t = 3.25 * (1 - points)
    z, shrinks = t / (3.6 + t), np.exp(-t * t / 2)
    show("tail(t) = exp(-t * t / 2) * P(z), z = t / (3.6 + t)", *minimax(
        np.stack([z ** i for i in range(7)], 1), tail(t) / shrinks, shrinks * np.maximum(t, 1)))

    show("2^f = P(f), |f| < 1/2", *minimax(
        np.stack([(points / 2) ** i for i in range(7)], 1), 2 ** (points / 2), 2 ** (-points / 2)))

    x = MINIMUM + points / 100
    show("gelu - least = d^2 * P(d), |x - MINIMUM| < 0.01", *minimax(
        np.stack([derivative(x) ** i for i in (2, 3)], 1), above_minimum(x), np.ones_like(x)))

    x = np.concatenate([MINIMUM + np.geomspace(1e-4, 0.07, 60),
                        np.linspace(MINIMUM + 0.07, 7, 3000)])
    y, s, d = gelu(x), np.sqrt(above_minimum(x)), derivative(x)
    low, high = y <= 1.7, (y >= 1.7) & (y < 4.9)
    show("d = s * P(s)", *minimax(np.stack([s[low] ** i for i in range(1, 7)], 1), d[low],
                                  np.ones(low.sum())))
    p = 1 - y[high] / 6
    show("d = 1 + p^8 * P(p), p = 1 - y / 6", *minimax(
        np.stack([p ** i for i in range(8, 13)], 1), d[high] - 1, np.ones(high.sum())))

    x = MINIMUM - np.concatenate([np.geomspace(1e-5, 0.3, 300), np.linspace(0.3, 6.8, 2500)])
    s, d, q = np.sqrt(above_minimum(x)), derivative(x), (-gelu(x)) ** 0.25
    error, found = minimax(np.stack([q * s * q ** i for i in range(4)]
                                    + [q * s * s * q ** i for i in range(4)], 1), d,
                           np.ones_like(d))
    show("d = q * s * (P0(q) + s * P1(q)); P0", error, found[:4])
    show("P1", error, found[4:])


if __name__ == "__main__":
    main()
