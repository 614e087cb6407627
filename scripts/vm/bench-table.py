#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""Medians of measurements (test,size,qps,driver,value,unit on stdin), and their ratios to C rxe, as CSV."""

import csv
import statistics
import sys

SMALLER_IS_BETTER = ("us", "ns")


def main():
    runs = {}
    for test, size, qps, driver, value, unit in csv.reader(sys.stdin):
        runs.setdefault((test, size, qps, unit), {}).setdefault(driver, []).append(float(value))

    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["test", "size", "qps", "driver", "median", "unit", "ratio_to_rxe"])
    for (test, size, qps, unit), drivers in runs.items():
        medians = {driver: statistics.median(values) for driver, values in drivers.items()}
        for driver, median in medians.items():
            ratio = ""
            if median == 0:
                sys.exit(f"{test} {size} {driver}: a median of 0 {unit} cannot be")
            if "rxe" in medians:
                ratio = median / medians["rxe"]
                if unit in SMALLER_IS_BETTER:
                    ratio = 1 / ratio
                ratio = f"{ratio:.2f}"
            out.writerow([test, size, qps, driver, f"{median:.2f}", unit, ratio])


if __name__ == "__main__":
    main()
