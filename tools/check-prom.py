#!/usr/bin/python3
"""Checks that Prometheus' own parsers, of OpenMetrics and of the older text format, read FILEs
alike. Exit code 77: python3-prometheus-client is not installed."""
import sys

try:
    from prometheus_client import parser as text_format
    from prometheus_client.openmetrics import parser as openmetrics
except ImportError:
    print("check-prom: SKIPPED: python3-prometheus-client is not installed")
    sys.exit(77)


def samples(families):
    return sorted((s.name, sorted(s.labels.items()), repr(float(s.value)))
                  for family in families for s in family.samples)


for path in sys.argv[1:]:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    try:
        new = samples(openmetrics.text_string_to_metric_families(text))
        old = samples(text_format.text_string_to_metric_families(text))
    except ValueError as error:
        sys.exit(f"{path}: {error}")
    if new != old or not new:
        sys.exit(f"{path}: OpenMetrics {new}\ntext format {old}")
    print(f"{path}: {len(new)} samples")
