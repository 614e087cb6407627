#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""bench-table.py build/NAME [build/CONTROL]: from NAME/raw.csv (test,size,qps,driver,value,unit, no head line) writes

NAME.csv  medians and their ratios to C rxe, where above 1 is better
NAME.dat  the ratios, for the graph
NAME.txt  a table for people, which is printed too; NAME/conditions goes before it

With CONTROL, the table has its ratios in a column of their own, and CONTROL.csv its medians.

A figure is "failed" if one of its measurements failed: the median of the others would look too good. The exit status is 1 if
that happened to C rxe or ferroce; siw and TCP are for comparison only."""

import csv
import statistics
import sys

DRIVERS = ("rxe", "ferroce", "siw", "tcp")
SMALLER_IS_BETTER = ("us", "packets", "locked")
GROUPS = {"MiB/s": "BANDWIDTH", "msg/s": "MESSAGE RATE", "us": "LATENCY", "locked": "LOCKED INSTRUCTIONS FOR A MESSAGE"}


def read(path):
    """(test, size, qps, unit) -> driver -> values, one unit after the other"""
    figures = {}
    with open(path, encoding="ascii") as file:
        for test, size, qps, driver, value, unit in csv.reader(file):
            figures.setdefault((test, int(size), int(qps), unit), {}).setdefault(driver, []).append(value)
    units = list(dict.fromkeys(unit for _, _, _, unit in figures))
    return dict(sorted(figures.items(), key=lambda item: units.index(item[0][3])))


def median(values):
    """The median of the values; None if one of them failed, or is no measurement."""
    try:
        result = statistics.median(float(value) for value in values)
    except ValueError:
        return None
    return result if result > 0 else None


def ratio(value, reference, unit):
    if value is None or reference is None:
        return None
    return reference / value if unit in SMALLER_IS_BETTER else value / reference


def size_name(size):
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size // unit} {name}"
    return f"{size} B"


def number(value):
    return f"{value:.2f}" if value < 1000 else f"{value:.0f}"


class Graph:
    """The rows of the graph, in groups with a heading. The figures of a test and a size share a row: their points are below each
    other, in the order of the numbers of queue pairs."""

    def __init__(self):
        self.rows = {}

    def add(self, group, test, size, qps, ratios):
        """A figure: a ratio, if there is one, for each driver."""
        self.rows.setdefault((group, test, size), {})[qps] = ratios

    def write(self, path, drivers):
        """Two blocks: position and label of each row, then position and ratios of each figure. Before them the number of rows."""
        labels, points = [], []
        last = None
        for (group, test, size), figures in self.rows.items():
            if group != last:
                last = group
                labels += ["", group]
            at = len(labels)
            numbers = "/".join(str(qps) for qps in figures)
            labels.append(f"{test} {size_name(size)}, {numbers} QP{'s' if numbers != '1' else ''}")
            for index, ratios in enumerate(figures.values()):
                height = at + (index + 1) / (len(figures) + 1) - 0.5
                points.append(f"{height:.2f} " + " ".join(str(ratio or "nan") for ratio in ratios))
        with open(path, "w", encoding="ascii") as dat:
            print(len(labels), *(f'"{driver}"' for driver in drivers), file=dat)
            print(*(f'{at} "{label}"' for at, label in enumerate(labels)), "", "", sep="\n", file=dat)
            print(*points, sep="\n", file=dat)


def write_csv(name, figures):
    """Medians and ratios of all drivers."""
    with open(f"{name}.csv", "w", encoding="ascii") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["test", "size", "qps", "driver", "median", "unit", "ratio_to_rxe"])
        for (test, size, qps, unit), by_driver in figures.items():
            medians = {driver: median(values) for driver, values in by_driver.items()}
            for driver in (d for d in DRIVERS if d in medians):
                value = medians[driver]
                against = ratio(value, medians.get("rxe"), unit)
                out.writerow([test, size, qps, driver, "failed" if value is None else f"{value:.2f}", unit,
                              "" if against is None else f"{against:.2f}"])


def main():
    name = sys.argv[1]
    figures = read(f"{name}/raw.csv")
    control = read(f"{sys.argv[2]}/raw.csv") if len(sys.argv) > 2 else {}
    write_csv(name, figures)
    if control:
        write_csv(sys.argv[2], control)
    drivers = [d for d in DRIVERS if any(d in by_driver for by_driver in figures.values())]
    failures = []
    ours_failed = False
    lines = ["".join(("test".ljust(16), "size".rjust(8), "QPs".rjust(5), "unit".rjust(7), drivers[0].rjust(10))
                     + tuple(f"{d:>10} ratio" for d in drivers[1:])
                     + (("control".rjust(9),) if control else ()))]

    graph = Graph()
    for (test, size, qps, unit), by_driver in figures.items():
        medians = {driver: median(values) for driver, values in by_driver.items()}
        ratios = {driver: ratio(value, medians.get("rxe"), unit) for driver, value in medians.items()}
        graph.add(GROUPS[unit], test, size, qps, [ratios.get(driver) for driver in drivers])
        line = f"{test:16}{size_name(size):>8}{qps:>5}{unit:>7}"
        for driver in drivers:
            value = medians.get(driver)
            shown = number(value) if value is not None else "failed" if driver in medians else "-"
            shown_ratio = f"{ratios[driver]:.2f}" if ratios.get(driver) is not None else ""
            line += f"{shown:>10}" + (f" {shown_ratio:>5}" if driver != drivers[0] else "")
            if shown == "failed":
                values = by_driver[driver]
                ours_failed |= driver in ("rxe", "ferroce")
                failures.append(f"failed: {test} {size_name(size)}, {qps} QPs, {driver}: "
                                f"{values.count('failed')} of {len(values)}")
        if control:
            beside = control.get((test, size, qps, unit), {})
            against = ratio(median(beside.get("ferroce", [])), median(beside.get("rxe", [])), unit)
            line += f"{against:9.2f}" if against is not None else "-".rjust(9)
        lines.append(line)
    graph.write(f"{name}.dat", drivers)

    with open(f"{name}/conditions", encoding="utf-8") as file:
        conditions = file.read()
    with open(f"{name}.txt", "w", encoding="utf-8") as file:
        print(conditions, *lines, *failures, sep="\n", file=file)
    print(*lines, *failures, sep="\n")
    return 1 if ours_failed else 0


if __name__ == "__main__":
    sys.exit(main())
