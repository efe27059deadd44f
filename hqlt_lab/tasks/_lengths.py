"""Sizes of examples: ranges that make no sense, and the buckets in which accuracy is told.

Buckets double from the shortest test size on; everything shorter is one bucket.
"""

from collections.abc import Mapping, Sequence

Bucket = tuple[int, int]


def wrong_lengths(asked: Mapping[str, Sequence[int] | None], shortest: int) -> list[str]:
    """A sentence for each range, by option, that is no range or begins below the shortest size."""
    found = []
    for option, sizes in asked.items():
        if sizes is not None and len(sizes) != 2:
            found.append(f"{option}: the shortest and the longest size are needed, as [3, 40]; got {list(sizes)}.")
        elif sizes is not None and sizes[0] > sizes[1]:
            found.append(f"{option}: the shortest size comes first. Use [{sizes[1]}, {sizes[0]}].")
        elif sizes is not None and sizes[0] < shortest:
            found.append(f"{option}: with these options the sizes of the task start at {shortest}, got {sizes[0]}.")
    return found


def buckets(lengths: Mapping[str, tuple[int, int]]) -> list[Bucket]:
    """The shortest and the longest size of each bucket, from those of the splits: 3-39, 40-79, 80-159, 160-256."""
    shortest = min(low for low, _ in lengths.values())
    longest = max(high for _, high in lengths.values())
    starts = [lengths["test"][0]]
    while starts[-1] * 2 < longest:
        starts.append(starts[-1] * 2)
    starts = [shortest, *starts] if shortest < starts[0] else starts
    return list(zip(starts, [start - 1 for start in starts[1:]] + [longest], strict=True))


def bucket_name(bucket: Bucket) -> str:
    """length_40_79, or length_64 for a single size."""
    low, high = bucket
    return f"length_{low}" if low == high else f"length_{low}_{high}"


def doubling(most: int, first: int = 1) -> list[int]:
    """1, 2, 4, ... as far as `most`."""
    found = [first]
    while found[-1] * 2 <= most:
        found.append(found[-1] * 2)
    return found
