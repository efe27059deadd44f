"""Numbers for people."""


def in_time(seconds: float) -> str:
    """42 s, 3 min, 2.5 h, 4 d"""
    for unit, size, next_size in (("s", 1, 90), ("min", 60, 5400), ("h", 3600, 172800)):
        if seconds < next_size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 86400:.3g} d"


def in_bytes(size: float) -> str:
    """12 kB, 3.4 MB, 1.2 GB"""
    return scaled(size, 1000, ("B", "kB", "MB", "GB", "TB", "PB"))


def in_numbers(count: float) -> str:
    """950, 595k, 399M, 1.47B"""
    return scaled(count, 1000, ("", "k", "M", "B", "T")).replace(" ", "")


def scaled(value: float, base: int, units: tuple[str, ...]) -> str:
    for unit in units[:-1]:
        if value < base:
            return f"{value:.3g} {unit}"
        value /= base
    return f"{value:.3g} {units[-1]}"
