"""Figures made of results, for run.py and its parts: ratios are taken within a round.

results: name of a program -> list over rounds of what it printed, or None.
"""
import statistics

from tables import gib


def figure(title, target, better, ratio=None, ours="", peer=""):
    return {"title": title, "target": target, "better": better, "ratio": ratio, "ours": ours,
            "peer": peer}


def paired(results, left, right, key="tokens_per_s"):
    """(median left, median right, median of left / right within a round), or None."""
    rounds = [(a[key], b[key]) for a, b in zip(results.get(left, []), results.get(right, []))
              if a and b and key in a and key in b]
    if not rounds:
        return None
    return [statistics.median(column) for column in
            (*zip(*rounds), [a / b for a, b in rounds])]


def best_of(runs, results, family):
    rows = {name: [r["tokens_per_s"] for r in results[name] if r]
            for name, (_, of, _) in runs.items() if of == family}
    full = max(map(len, rows.values()), default=0)
    rates = {name: statistics.median(r) for name, r in rows.items() if r and len(r) == full}
    return max(rates, key=rates.get) if rates else None


def speed(results, title, left, right, target, better="higher"):
    pair = paired(results, left, right) if left and right else None
    if not pair:
        return figure(title, target, better)
    return figure(title, target, better, ratio=pair[2], ours=f"{pair[0]:.0f} tokens/s",
                  peer=f"{pair[1]:.0f} tokens/s ({right})")


def share(results, title, name, key, target, better="higher"):
    """A share that Lockstep itself reports: no peer."""
    values = [key(r) for r in results.get(name, []) if r and key(r) is not None]
    if not values:
        return figure(title, target, better)
    value = statistics.median(values)
    return figure(title, target, better, ratio=value, ours=f"{100 * value:.0f} %")


def memory(results, title, left, right, key="peak_rss_bytes"):
    """Beside speed(), of the same programs."""
    pair = paired(results, left, right, key) if left and right else None
    if not pair:
        return figure(title, 1.0, "lower")
    return figure(title, 1.0, "lower", ratio=pair[2], ours=f"{gib(pair[0])} GiB",
                  peer=f"{gib(pair[1])} GiB ({right})")
