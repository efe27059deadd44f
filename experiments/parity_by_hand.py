"""The smallest ablation, by hand: which timing lets a hybrid count modulo two?

Trains three models that differ in one part on the parity of up to 40 bits, and asks them about up to 128.
It takes about two minutes on two cores.
"""

import time

import torch
import torch.nn.functional as F

import hqlt_lab as lab

STEPS, ROWS, TRAIN, TEST = 300, 128, 40, 128


def parity(rows: int, longest: int, draw: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random bits [rows, longest], the place of each row's last bit, and the parity up to there."""
    bits = torch.randint(0, 2, (rows, longest), generator=draw)
    last = torch.randint(2, longest, (rows,), generator=draw)
    return bits, last, bits.cumsum(1)[torch.arange(rows), last] % 2


def accuracy(model: torch.nn.Module, longest: int) -> float:
    """Percent of 1,024 rows, the same for every model."""
    bits, last, answer = parity(1024, longest, torch.Generator().manual_seed(1))
    with torch.no_grad():
        logits, _ = model(bits)
    return 100 * (logits[torch.arange(1024), last].argmax(-1) == answer).float().mean().item()


def trained(timing: dict) -> torch.nn.Module:
    model = lab.build_model(
        vocabulary=2,
        width=64,
        heads=2,
        layers=2,
        update_rule={"name": "delta", "max_beta": 2},
        timing=timing,
        mixer="vector",
        positions="none",
    )
    draw = torch.Generator().manual_seed(0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    for step in range(STEPS):
        bits, last, answer = parity(ROWS, TRAIN, draw)
        logits, _ = model(bits)
        loss = F.cross_entropy(logits[torch.arange(ROWS), last], answer)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 49:
            print(f"  step {step + 1}: loss {loss.item():.3f}", flush=True)
    return model


def main() -> None:
    rows = []
    for name in lab.available("timing"):
        print(f"{name}, window 8", flush=True)
        start = time.perf_counter()
        model = trained({"name": name, "window": 8})
        rows.append((name, accuracy(model, TRAIN), accuracy(model, TEST), time.perf_counter() - start))
    print(f"\n{'timing':16}{'<= 40 bits':>12}{'<= 128 bits':>12}{'seconds':>10}      chance is 50")
    for name, short, long, seconds in rows:
        print(f"{name:16}{short:>11.1f}%{long:>11.1f}%{seconds:>10.0f}")
    best = max(rows, key=lambda row: row[2])
    print(f"\nWithin {STEPS} steps and one seed, {best[0]} counts best: {best[2]:.1f}% at up to {TEST} bits.")


if __name__ == "__main__":
    main()
