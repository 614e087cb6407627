#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""bench-loss-table.py build/NAME: from NAME/raw.csv (net,test,size,qps,driver,value,unit, no head line) writes

NAME.csv  medians, their ratios to C rxe, and to the same driver over the clean network: above 1 is better
NAME.dat  the ratios of bandwidths and latencies to C rxe, for the graph
NAME.txt  a table for people, which is printed too; NAME/conditions goes before it

A figure is "failed" if one of its measurements failed: the median of the others would look too good."""

import csv
import importlib.util
import pathlib
import sys

SPEC = importlib.util.spec_from_file_location("table", pathlib.Path(__file__).with_name("bench-table.py"))
TABLE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(TABLE)

# "ferroce to rxe" has a ferroce client and a server of C rxe.
DRIVERS = ("rxe", "ferroce", "ferroce to rxe", "rxe to ferroce", "tcp")


def read(path):
    """(net, test, size, qps, unit) -> driver -> values"""
    figures = {}
    with open(path, encoding="ascii") as file:
        for net, test, size, qps, driver, value, unit in csv.reader(file):
            figures.setdefault((net, test, int(size), int(qps), unit), {}).setdefault(driver, []).append(value)
    return figures


def shown(value):
    return "" if value is None else f"{value:.2f}"


def width(driver):
    """The width of its column in the table."""
    return max(10, len(driver) + 3)


def write_dat(name, medians, drivers):
    """The bandwidths and latencies of each network are a group."""
    graph = TABLE.Graph()
    for (net, test, size, qps, unit), by_driver in medians.items():
        if unit not in ("MiB/s", "us"):
            continue
        ratios = [TABLE.ratio(by_driver.get(driver), by_driver.get("rxe"), unit) for driver in drivers]
        graph.add(net.upper(), test, size, qps, ratios)
    graph.write(f"{name}.dat", drivers)


def main():
    name = sys.argv[1]
    figures = read(f"{name}/raw.csv")
    medians = {row: {driver: TABLE.median(values) for driver, values in by_driver.items()}
               for row, by_driver in figures.items()}
    drivers = [driver for driver in DRIVERS if any(driver in by_driver for by_driver in figures.values())]
    head = "net".ljust(15) + "test".ljust(17) + "size".rjust(7) + "QPs".rjust(4) + "unit".rjust(9)
    lines = [head + "".join(driver.rjust(width(driver)) for driver in drivers) + "   to rxe to clean"]

    with open(f"{name}.csv", "w", encoding="ascii") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["net", "test", "size", "qps", "driver", "median", "unit", "ratio_to_rxe", "ratio_to_clean"])
        for row, by_driver in medians.items():
            net, test, size, qps, unit = row
            clean = medians.get(("clean", test, size, qps, unit), {})
            line = f"{net:15}{test:17}{TABLE.size_name(size):>7}{qps:>4}{unit:>9}"
            for driver in drivers:
                if driver not in by_driver:
                    line += "-".rjust(width(driver))
                    continue
                value = by_driver[driver]
                to_rxe = TABLE.ratio(value, by_driver.get("rxe"), unit)
                to_clean = TABLE.ratio(value, clean.get(driver), unit)
                figure = "failed" if value is None else f"{value:.2f}"
                out.writerow([net, test, size, qps, driver, figure, unit, shown(to_rxe), shown(to_clean)])
                line += figure.rjust(width(driver))
            ours = by_driver.get("ferroce")
            line += shown(TABLE.ratio(ours, by_driver.get("rxe"), unit)).rjust(9)
            line += shown(TABLE.ratio(ours, clean.get("ferroce"), unit)).rjust(9)
            lines.append(line)

    write_dat(name, medians, drivers)
    with open(f"{name}/conditions", encoding="utf-8") as file:
        conditions = file.read()
    with open(f"{name}.txt", "w", encoding="utf-8") as file:
        print(conditions, *lines, sep="\n", file=file)
    print(*lines, sep="\n")
    return any(by_driver.get("ferroce", 1) is None for by_driver in medians.values())


if __name__ == "__main__":
    sys.exit(main())
