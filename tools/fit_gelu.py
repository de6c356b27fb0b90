"""The polynomials and tables of gelu, fitted.

    python tools/fit_gelu.py        # the polynomials of plugins/ops/cuda/gelu.cu, with their errors
    python tools/fit_gelu.py 8      # plugins/ops/gelu_tables_8.h, for eight lanes; or 16

Least squares with Lawson's weights (C. L. Lawson, 1961), which come to the polynomial whose largest
error is least. Takes seconds; needs NumPy alone.
"""
from __future__ import annotations

import math
import sys
import textwrap
from typing import List, NamedTuple, Sequence, Tuple

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


def derivative_near(e: np.ndarray) -> np.ndarray:
    """The derivative at MINIMUM + e: the integral of the second one, by Gauss's rule."""
    points, weights = np.polynomial.legendre.leggauss(20)
    x = MINIMUM + e[:, None] * (points + 1) / 2
    return (density(x) * (2 - x * x) * weights).sum(1) * e / 2


def right_of_minimum() -> np.ndarray:
    return np.concatenate([MINIMUM + np.geomspace(1e-4, 0.07, 300),
                           np.linspace(MINIMUM + 0.07, 7, 9000)])


def left_of_minimum() -> np.ndarray:
    return MINIMUM - np.concatenate([np.geomspace(1e-5, 0.3, 400), np.linspace(0.3, 6.8, 9000)])


def values(x: np.ndarray) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Gelu, the root of its distance from the minimum, and the derivative."""
    return gelu(x), np.sqrt(above_minimum(x)), derivative(x)


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


def show_polynomials() -> None:
    points = np.cos(np.pi * (np.arange(1500) + 0.5) / 1500)
    t = 3.25 * (1 - points)
    z, shrinks = t / (3.6 + t), np.exp(-t * t / 2)
    show("tail(t) = exp(-t * t / 2) * P(z), z = t / (3.6 + t)", *minimax(
        np.stack([z ** i for i in range(7)], 1), tail(t) / shrinks, shrinks * np.maximum(t, 1)))

    show("2^f = P(f), |f| < 1/2", *minimax(
        np.stack([(points / 2) ** i for i in range(7)], 1), 2 ** (points / 2), 2 ** (-points / 2)))

    e = points * 0.006
    show("d = e * P(e), e = x - MINIMUM", *minimax(
        np.stack([e, e ** 2], 1), derivative_near(e), np.ones_like(e)))
    show("gelu - least = e^2 * P(e)", *minimax(
        np.stack([e ** 2, e ** 3], 1), above_minimum(MINIMUM + e), np.ones_like(e)))

    y, s, d = values(right_of_minimum())
    low, high = y <= 1.7, (y >= 1.7) & (y < 4.9)
    show("d = s * P(s)", *minimax(np.stack([s[low] ** i for i in range(1, 7)], 1), d[low],
                                  np.ones(low.sum())))
    p = 1 - y[high] / 6
    show("d = 1 + p^8 * P(p), p = 1 - y / 6", *minimax(
        np.stack([p ** i for i in range(8, 13)], 1), d[high] - 1, np.ones(high.sum())))

    y, s, d = values(left_of_minimum())
    q = (-y) ** 0.25
    error, found = minimax(np.stack([q * s * q ** i for i in range(4)]
                                    + [q * s * s * q ** i for i in range(4)], 1), d,
                           np.ones_like(d))
    show("d = q * s * (P0(q) + s * P1(q)); P0", error, found[:4])
    show("P1", error, found[4:])


class Layout(NamedTuple):
    """How many rows of a table stand for what, and the degrees of its polynomials."""

    tail_degree: int
    slope_degree: int
    right: int
    left: int  # up to y = HIGH; the rest of the rows for y above it


LAYOUTS = {8: Layout(8, 6, 5, 1), 16: Layout(6, 4, 10, 2)}
#: From here on the tail is 0 in the tables.
TAIL_END = 6.0
#: The largest output right of the minimum that is told from larger ones.
TOP = 5.3
#: Left of the minimum, where the place in the table is told by the root of y itself, times STRETCH.
HIGH, STRETCH = -0.1, 8.0


def tail_row(number: int, rows: float, degree: int) -> np.ndarray:
    """A polynomial of u for tail((number + u) / rows) whose derivative is as close."""
    points = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    u = points / 2 if number else (points + 1) / 4
    t = (number + u) / rows
    powers = np.arange(1, degree + 1)
    rising = minimax((number + u)[:, None] * powers * u[:, None] ** (powers - 1), -t * density(t),
                     np.ones_like(t))[1]
    rest = tail(t) - np.stack([u ** i for i in powers], 1) @ rising
    return np.concatenate([[(rest.max() + rest.min()) / 2], rising])


def slope_row(place: np.ndarray, d: np.ndarray, degree: int, begins: bool) -> np.ndarray:
    """A polynomial of u for d; 0 at u = -1/2 if the range begins there, at the minimum."""
    inside = np.abs(place) <= 0.5
    u, ones = place[inside], np.ones(inside.sum())
    if not begins:
        return minimax(np.stack([u ** i for i in range(degree + 1)], 1), d[inside], ones)[1]
    found = minimax(np.stack([(u + 0.5) * u ** i for i in range(degree)], 1), d[inside], ones)[1]
    return np.polynomial.polynomial.polymul(found, [0.5, 1])


def show_table(name: str, rows: Sequence[np.ndarray]) -> None:
    """The highest power first, of all rows."""
    print("const float %s[][%d] = {" % (name, len(rows)))
    for column in np.stack(rows, 1)[::-1]:
        print("\n".join(textwrap.wrap("{%s}," % ", ".join("%.9ef" % value for value in column), 100,
                                      initial_indent="    ", subsequent_indent="     ")))
    print("};")


def show_tables(lanes: int) -> None:
    layout = LAYOUTS[lanes]
    print("// Gelu's tables for vectors of %d floats, which gelu_vectors.h reads. Made by\n"
          "// tools/fit_gelu.py, not by hand.\n" % lanes)
    rows = (lanes - 1.5) / TAIL_END
    print("constexpr int kTailDegree = %d;" % layout.tail_degree)
    print("constexpr double kTailRows = %.9e, kTailEnd = %.9e;" % (rows, (lanes - 0.6) / rows))
    show_table("kTail", [tail_row(k, rows, layout.tail_degree) for k in range(lanes - 1)]
               + [np.zeros(layout.tail_degree + 1)])

    _, s, d = values(right_of_minimum())
    rows = (layout.right - 0.002) / math.sqrt(TOP + above_minimum(np.array([0.0]))[0])
    found = [slope_row(s * rows - 0.5 - k, d, layout.slope_degree, k == 0)
             for k in range(layout.right)]
    y, s, d = values(left_of_minimum())
    low, high = y <= 0.98 * HIGH, y >= 1.02 * HIGH
    middle, last = layout.right - 0.5, layout.right + layout.left - 0.5
    found += [slope_row((s * rows + middle - k)[low], d[low], layout.slope_degree,
                        k == layout.right)
              for k in range(layout.right, layout.right + layout.left)]
    found += [slope_row((np.sqrt(-y * STRETCH) * rows + last - k)[high], d[high],
                        layout.slope_degree, False)
              for k in range(layout.right + layout.left, lanes)]
    print("\nconstexpr int kSlopeDegree = %d;" % layout.slope_degree)
    print("constexpr double kSlopeRows = %.9e, kTop = %.1f, kHigh = %.1f, kStretch = %.1f;"
          % (rows, TOP, HIGH, STRETCH))
    print("constexpr double kFirstLeft = %.1f, kFirstHigh = %.1f;" % (middle, last))
    show_table("kSlope", found)


def main(arguments: List[str]) -> None:
    if arguments:
        show_tables(int(arguments[0]))
    else:
        show_polynomials()


if __name__ == "__main__":
    main(sys.argv[1:])
