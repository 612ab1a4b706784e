"""Figures of a part: lines of JSON on standard output, each with a check or raw values.

A goal is met (true), missed (false), or open (null): there is none, or the interval of the figure contains it.
"""

import json
import math
import statistics

MIB = 1 << 20


def raw(**values):
    print(json.dumps(values), flush=True)


def check(what, value, unit="", goal="", met=None):
    raw(check=what, value=value, unit=unit, goal=goal, met=met)


def at_most(what, value, most, unit=""):
    check(what, round(value, 3), unit, f"<= {most}", value <= most)


def at_least(what, value, least, unit=""):
    check(what, round(value, 3), unit, f">= {least}", value >= least)


def exactly(what, value, wanted, unit=""):
    check(what, value, unit, str(wanted), value == wanted)


def interval(values, level=0.95):
    """Bounds of the median, with no assumption on the distribution: the k-th lowest and the k-th highest value."""
    values, count = sorted(values), len(values)
    outside, k = 0.0, 0
    while k < (count - 1) // 2:
        outside += 2 * math.comb(count, k) / 2**count
        if outside > 1 - level:
            break
        k += 1
    return values[max(k - 1, 0)], values[-max(k, 1)]


def turns(names, count):
    """The names in each turn; another one is first each time."""
    for turn in range(count):
        first = turn % len(names)
        yield names[first:] + names[:first]


def spread(what, values, unit="", most=None):
    """The median of some values with its interval of 95 % and the range; judged by the interval."""
    low, high = interval(values)
    met = None if most is None else True if high <= most else False if low > most else None
    text = f"{what} (95 %: {low:.4g} to {high:.4g}; {min(values):.4g} to {max(values):.4g} in {len(values)} turns)"
    check(text, round(statistics.median(values), 3), unit, "" if most is None else f"<= {most}", met)


def quantiles(what, values, unit):
    """Median and 99th percentile."""
    ordered = sorted(values)
    for name, part in (("p50", 0.5), ("p99", 0.99)):
        check(f"{what}, {name} of {len(ordered)}", round(ordered[math.ceil(part * len(ordered)) - 1], 1), unit)
