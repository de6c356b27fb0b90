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


def chebyshev(m: np.ndarray, count: int) -> np.ndarray:
    return np.stack([np.cos(i * np.arccos(np.clip(m, -1, 1))) for i in range(count)], 1)


def show(name: str, error: float, coefficients: Sequence[float], is_chebyshev: bool = True) -> None:
    if is_chebyshev:
        coefficients = np.polynomial.chebyshev.cheb2poly(coefficients)
    print("%s, error %.1e:\n  %s" % (name, error, ", ".join(
        "%.9e" % value for value in coefficients[::-1])))


def main() -> None:
    k = 1 / (1 + 0.35 * 13.2)
    k = (1 + k) / 2 + (1 - k) / 2 * np.cos(np.pi * (np.arange(800) + 0.5) / 800)
    t = (1 / k - 1) / 0.35
    mills = tail(t) * np.exp(t * t / 2)
    show("tail(t) * exp(t^2 / 2) = k * P(k), k = 1 / (1 + 0.35 t)",
         *minimax(np.stack([k ** i for i in range(1, 10)], 1), mills, 1 / mills), False)

    u = 0.25 * np.cos(np.pi * (np.arange(500) + 0.5) / 500)
    slope = np.sign(u) * np.sqrt(above_minimum(MINIMUM + u)) / u
    show("s = u * P(u)", *minimax(np.stack([u ** i for i in range(8)], 1), slope, 1 / slope), False)

    x = np.concatenate([MINIMUM + np.linspace(1e-4, 0.3, 100), np.linspace(MINIMUM + 0.3, 7, 6000)])
    y, s, d = gelu(x), np.sqrt(above_minimum(x)), derivative(x)
    one = np.ones_like(d)
    low, middle, high = s <= 1, (s >= 1) & (y <= 2.4), (y >= 2.4) & (y < 6.5)
    show("d = s * P(2 s - 1)", *minimax(s[low, None] * chebyshev(2 * s[low] - 1, 10), d[low],
                                        one[low]))
    show("d = P((y - 1.61475) / 0.78525)",
         *minimax(chebyshev((y[middle] - 1.61475) / 0.78525, 10), d[middle], one[middle]))
    columns = ((8.25 - y[high]) / 5.85)[:, None] ** 16 * chebyshev((y[high] - 2.4) / 2.05 - 1, 8)
    show("d = 1 + ((8.25 - y) / 5.85)^16 * P((y - 2.4) / 2.05 - 1)",
         *minimax(columns, d[high] - 1, one[high]))

    x = MINIMUM - np.concatenate([np.geomspace(1e-5, 0.3, 300), np.linspace(0.3, 6.8, 2500)])
    s, d, q = np.sqrt(above_minimum(x)), derivative(x), (-gelu(x)) ** 0.25
    m, weight = q / 0.3211 - 1, -(q * s)[:, None]
    error, found = minimax(np.concatenate([weight * chebyshev(m, 6),
                                           weight * s[:, None] * chebyshev(m, 7)], 1),
                           d, np.ones_like(d))
    show("d = -q * s * (P(q / 0.3211 - 1) + s * R(...)), P", error, found[:6])
    show("R", error, found[6:])


if __name__ == "__main__":
    main()
