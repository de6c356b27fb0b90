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
    points = np.cos(np.pi * (np.arange(1000) + 0.5) / 1000)
    t = 3.3 * (1 - points)
    root = tail(t) ** -0.125
    # What counts is the error of t * tail(t); far out, where it is small, a little of the relative.
    weight = 8 * np.maximum(np.maximum(t, 0.25) * tail(t), 3e-3 * np.exp(-1.2 * t)) / root
    error, found = minimax(chebyshev(t / 3.3 - 1, 12), root, weight)
    powers = sum((c * np.poly1d([1 / 3.3, -1]) ** i for i, c in
                  enumerate(np.polynomial.chebyshev.cheb2poly(found))), np.poly1d([0.0]))
    show("tail(t) = P(t)^-8", error, powers.coeffs[::-1], False)

    u = 0.5 * points
    slope = np.sign(u) * np.sqrt(above_minimum(MINIMUM + u)) / u
    show("s = u * P(u)", *minimax(np.stack([u ** i for i in range(6)], 1), slope,
                                  (0.3 + 2 * abs(u)) / slope), False)

    x = np.concatenate([MINIMUM + np.linspace(1e-4, 0.07, 60),
                        np.linspace(MINIMUM + 0.07, 7, 6000)])
    y, s, d = gelu(x), np.sqrt(above_minimum(x)), derivative(x)
    one = np.ones_like(d)
    show("next to the minimum, d = s * P(s)", *minimax(
        np.stack([s[:60] ** i for i in (1, 2, 3)], 1), d[:60], 1 / s[:60]), False)
    low, high = y <= 2.2, (y >= 2.2) & (y < 6.5)
    show("d = P(1.299 s - 1)", *minimax(chebyshev(1.299 * s[low] - 1, 15), d[low], one[low]))
    columns = ((8.25 - y[high]) / 6.05)[:, None] ** 16 * chebyshev((y[high] - 2.2) / 2.15 - 1, 8)
    show("d = 1 + ((8.25 - y) / 6.05)^16 * P((y - 2.2) / 2.15 - 1)",
         *minimax(columns, d[high] - 1, one[high]))

    x = MINIMUM - np.concatenate([np.geomspace(1e-5, 0.3, 300), np.linspace(0.3, 6.8, 2500)])
    s, d, q = np.sqrt(above_minimum(x)), derivative(x), (-gelu(x)) ** 0.25
    m, weight = chebyshev(q / 0.3211 - 1, 4), -(q * s)[:, None]
    error, found = minimax(np.concatenate([weight * m, weight * s[:, None] * m,
                                           weight * (s * s)[:, None] * m], 1),
                           d, np.ones_like(d))
    for power, part in enumerate(np.split(found, 3)):
        show("d = -q * s * (P0 + s * P1 + s^2 * P2), all of q / 0.3211 - 1; P%d" % power, error,
             part)


if __name__ == "__main__":
    main()
