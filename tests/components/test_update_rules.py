"""Every linear rule equals a loop written from its paper, and the rules equal each other in special cases."""

import math

import pytest
import torch
import torch.nn.functional as F

from hqlt_lab.ops.gates import DEFAULT_CONTEXT, Gates
from hqlt_lab.registry import build

B, H, T, K, WIDTH = 2, 2, 40, 4, 8


def make_rule(name, **options):
    torch.manual_seed(1)
    return build("update_rule", {"name": name, **options}, width=WIDTH, heads=H).double()


def make_inputs(rule):
    """Return x, and q, k, v after the rule's feature map, with the query scale of the layer."""
    generator = torch.Generator().manual_seed(2)
    feature_map = build("feature_map", rule.feature_map, width=WIDTH, heads=H)
    x, q, k, v = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((B, T, WIDTH), (B, H, T, K), (B, H, T, K), (B, H, T, K))
    )
    scale = K**-0.5 if rule.scales_queries else 1.0
    return x, feature_map(q) * scale, feature_map(k), v


def loop(rule, step):
    """Return the reads of a loop: `step(t, S, k, v)` with S [B, H, V, K] as in the papers; they are S q."""
    _, q, k, v = make_inputs(rule)
    memory, reads = torch.zeros(B, H, K, K, dtype=torch.float64), []
    for t in range(T):
        memory = step(t, memory, k[:, :, t], v[:, :, t])
        reads.append((memory @ q[:, :, t, :, None])[..., 0])
    return torch.stack(reads, 2)


def assert_rule_equals_loop(rule, step):
    x, q, k, v = make_inputs(rule)
    reads, _ = rule.scan(q, k, v, rule.gates(x), None, DEFAULT_CONTEXT)
    torch.testing.assert_close(reads, loop(rule, step))


def heads(y):
    """[B, T, H * K] -> [B, H, T, K]."""
    return y.view(B, T, H, -1).permute(0, 2, 1, 3)


def outer(a, b):
    return a[..., :, None] * b[..., None, :]


def kda_decay(rule, x):
    decay = rule.decay
    step = F.softplus(x @ decay.to_hidden.weight.T @ decay.to_step.weight.T + decay.bias)
    return torch.exp(-decay.log_rate.exp()[:, None, None] * heads(step))  # [B, H, T, K]


def head_decay(rule, x):
    return torch.exp(-rule.decay.log_rate.exp() * F.softplus(x @ rule.decay.to_step.weight.T + rule.decay.bias)).mT


@pytest.mark.parametrize("max_beta", [1.0, 2.0])
def test_delta_follows_its_paper(max_beta):
    rule = make_rule("delta", max_beta=max_beta)
    x, *_ = make_inputs(rule)
    beta = max_beta * torch.sigmoid(x @ rule.to_beta.weight.T).mT[..., None, None]
    assert_rule_equals_loop(rule, lambda t, S, k, v: S + beta[:, :, t] * outer(v - (S @ k[..., None])[..., 0], k))


@pytest.mark.parametrize("max_beta", [1.0, 2.0])
def test_gated_delta_follows_its_paper(max_beta):
    rule = make_rule("gated_delta", max_beta=max_beta)
    x, *_ = make_inputs(rule)
    beta = max_beta * torch.sigmoid(x @ rule.to_beta.weight.T).mT[..., None, None]
    rate = rule.log_rate.exp() * F.softplus(x @ rule.to_fade.weight.T + rule.fade_bias)
    alpha = torch.exp(-rate).mT[..., None, None]

    def step(t, S, k, v):
        return alpha[:, :, t] * S @ (torch.eye(K) - beta[:, :, t] * outer(k, k)) + beta[:, :, t] * outer(v, k)

    assert_rule_equals_loop(rule, step)


def test_retention_follows_its_paper():
    gamma = 1 - 2.0 ** -(5 + torch.arange(H, dtype=torch.float64))[:, None, None]
    assert_rule_equals_loop(make_rule("retention"), lambda t, S, k, v: gamma * S + outer(v, k))


def test_linear_attention_without_normalizer_follows_its_paper():
    assert_rule_equals_loop(make_rule("linear_attention", normalizer="none"), lambda t, S, k, v: S + outer(v, k))


def test_normalized_linear_attention_follows_its_paper():
    rule = make_rule("linear_attention")
    x, q, k, v = make_inputs(rule)
    expected = []
    for t in range(T):
        weights = torch.einsum("bhk,bhsk->bhs", q[:, :, t], k[:, :, : t + 1])
        weights = weights / weights.sum(-1, keepdim=True)
        expected.append(torch.einsum("bhs,bhsv->bhv", weights, v[:, :, : t + 1]))
    reads, _ = rule.scan(q, k, v, rule.gates(x), None, DEFAULT_CONTEXT)
    torch.testing.assert_close(reads, torch.stack(expected, 2))


def test_gla_follows_its_paper():
    rule = make_rule("gla")
    x, *_ = make_inputs(rule)
    alpha = torch.sigmoid(heads(x @ rule.to_hidden.weight.T @ rule.to_keep.weight.T + rule.to_keep.bias)) ** (1 / 16)
    assert_rule_equals_loop(rule, lambda t, S, k, v: S * alpha[:, :, t, None] + outer(v, k))


@pytest.mark.parametrize("lower_bound", [0.0, 0.6])
def test_hgrn2_follows_its_paper(lower_bound):
    rule = make_rule("hgrn2", lower_bound=lower_bound)
    x, *_ = make_inputs(rule)
    keep = lower_bound + (1 - lower_bound) * torch.sigmoid(heads(x @ rule.to_keep.weight.T))
    assert_rule_equals_loop(rule, lambda t, S, k, v: S * keep[:, :, t, None] + outer(v, 1 - keep[:, :, t]))


@pytest.mark.parametrize("logit", [-18.0, -5.0, 0.0, 5.0, 12.0])
def test_hgrn2_computes_its_key_and_the_gradient_of_the_key_accurately_for_any_keep(logit):
    """The key 1 - f is small where f is near 1, and its gradient -f is small where f is near 0."""
    results = {}
    for dtype in (torch.float64, torch.float32):
        rule, x = make_rule("hgrn2").to(dtype), torch.ones(1, 3, WIDTH, dtype=dtype)
        with torch.no_grad():
            rule.to_keep.weight.fill_(logit / WIDTH)
        k = torch.zeros(1, H, 3, K, dtype=dtype)
        log_keep = rule.gates(x).log_keep.detach().requires_grad_()
        key = rule.scan_inputs(k, k, k, Gates(log_keep)).k
        results[dtype] = key.double(), torch.autograd.grad(key.sum(), log_keep)[0].double()
    for actual, expected in zip(results[torch.float32], results[torch.float64], strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=0)


def test_mamba2_follows_its_paper():
    rule = make_rule("mamba2")
    x, *_ = make_inputs(rule)
    dt = F.softplus(x @ rule.decay.to_step.weight.T + rule.decay.bias).mT[..., None, None]
    alpha = torch.exp(-rule.decay.log_rate.exp()[:, None, None, None] * dt)
    assert_rule_equals_loop(rule, lambda t, S, k, v: S * alpha[:, :, t] + dt[:, :, t] * outer(v, k))


@pytest.mark.parametrize("max_beta", [1.0, 2.0])
def test_kda_follows_its_paper(max_beta):
    rule = make_rule("kda", max_beta=max_beta)
    x, *_ = make_inputs(rule)
    alpha, beta = kda_decay(rule, x), max_beta * torch.sigmoid(x @ rule.to_beta.weight.T).mT[..., None, None]

    def step(t, S, k, v):
        S = S * alpha[:, :, t, None]
        return S @ (torch.eye(K) - beta[:, :, t] * outer(k, k)) + beta[:, :, t] * outer(v, k)

    assert_rule_equals_loop(rule, step)


@pytest.mark.parametrize("max_beta", [1.0, 2.0])
def test_gdn2_follows_its_paper(max_beta):
    rule = make_rule("gdn2", max_beta=max_beta)
    x, *_ = make_inputs(rule)
    alpha = kda_decay(rule, x)
    b, w = (torch.sigmoid(heads(x @ linear.weight.T)) for linear in (rule.to_erase, rule.to_write))

    def step(t, S, k, v):
        S = S * alpha[:, :, t, None]
        return S @ (torch.eye(K) - max_beta * outer(b[:, :, t] * k, k)) + outer(w[:, :, t] * v, k)

    assert_rule_equals_loop(rule, step)


def test_comba_follows_its_paper():
    rule = make_rule("comba", query_correction=0.5)
    x, q, k, v = make_inputs(rule)
    alpha, beta = head_decay(rule, x)[..., None, None], torch.sigmoid(x @ rule.to_beta.weight.T).mT[..., None, None]
    strength = torch.sigmoid(torch.ones(1))
    memory, reads = torch.zeros(B, H, K, K, dtype=torch.float64), []
    for t in range(T):
        k_t, v_t, q_t = k[:, :, t], v[:, :, t], q[:, :, t] * K**0.5
        memory = alpha[:, :, t] * memory + beta[:, :, t] * outer(
            v_t - strength * (memory @ k_t[..., None])[..., 0], k_t
        )
        corrected = q_t - 0.5 * strength * k_t
        corrected = corrected / (corrected.square().sum(-1, keepdim=True) + 1e-6).sqrt() * K**-0.5
        reads.append((memory @ corrected[..., None])[..., 0])
    actual, _ = rule.scan(q, k, v, rule.gates(x), None, DEFAULT_CONTEXT)
    torch.testing.assert_close(actual, torch.stack(reads, 2), rtol=1e-6, atol=1e-8)


def test_rwkv7_follows_its_paper():
    rule = make_rule("rwkv7")
    x, *_ = make_inputs(rule)
    decay = torch.tanh(x @ rule.to_decay_hidden.weight.T) @ rule.to_decay.weight.T + rule.decay_bias
    w = torch.exp(-math.exp(-0.5) * torch.sigmoid(heads(decay)))
    a = torch.sigmoid(heads(x @ rule.to_removal_hidden.weight.T @ rule.to_removal.weight.T + rule.removal_bias))

    def step(t, S, k, v):
        removal_key = F.normalize(k * rule.lookup_scale, dim=-1)
        written_key = k * (1 + (a[:, :, t] - 1) * rule.write_mix)
        transition = torch.diag_embed(w[:, :, t]) - outer(removal_key, a[:, :, t] * removal_key)
        return S @ transition + outer(v, written_key)

    assert_rule_equals_loop(rule, step)


def test_rwkv7_starts_with_the_published_decay():
    rule = make_rule("rwkv7", depth=0.0)
    channel = torch.arange(WIDTH, dtype=torch.float64)
    zigzag = ((channel % K - (K - 1) / 2) / ((K - 1) / 2)) * ((channel % K - (K - 1) / 2) / ((K - 1) / 2)).abs()
    expected = -6 + 6 * (channel / (WIDTH - 1)) + 0.5 + 2.5 * zigzag
    torch.testing.assert_close(rule.decay_bias.detach(), expected.float().double())
    assert rule.gates(torch.randn(1, 5, WIDTH).double()).log_keep.min() >= -0.6066


@pytest.mark.parametrize(
    ("name", "feature_map", "scales_queries"),
    [
        ("gla", "identity", True),
        ("hgrn2", "silu", True),
        ("mamba2", "silu", False),
        ("kda", "silu_l2", True),
        ("gdn2", "silu_l2", True),
        ("comba", "silu_l2", True),
        ("rwkv7", "identity", False),
        ("erase_then_delta", "silu_l2", True),
    ],
)
def test_keys_and_scale_of_reads_are_those_of_the_authors(name, feature_map, scales_queries):
    rule = make_rule(name)
    assert (rule.feature_map, rule.scales_queries) == (feature_map, scales_queries)
    looks_up_unit_keys = name in ("kda", "gdn2", "comba", "erase_then_delta")
    assert rule.needs_unit_keys == looks_up_unit_keys


@pytest.mark.parametrize(
    ("name", "options", "lowest_rate"),
    [
        ("mamba2", {}, 1.0),
        ("kda", {}, 1.0),
        ("gdn2", {}, 1.0),
        ("erase_then_delta", {}, 1.0),
        ("comba", {}, 0.0),
        ("delta_product", {"decay": True}, 0.0),
    ],
)
def test_decays_start_in_the_published_ranges(name, options, lowest_rate):
    torch.manual_seed(0)
    decay = build("update_rule", {"name": name, **options}, width=1024, heads=512).decay
    rates, steps = decay.log_rate.exp(), F.softplus(decay.bias)
    assert lowest_rate <= rates.min() < lowest_rate + 0.5 and 15.5 < rates.max() <= 16
    assert 0.00099 < steps.min() < 0.0012 and 0.09 < steps.max() < 0.1001
    assert decay.log_rate.no_decay and decay.bias.no_decay


def test_erase_keys_start_weak_and_gla_keeps_almost_all():
    x = torch.zeros(1, 1, WIDTH, dtype=torch.float64)
    torch.testing.assert_close(
        make_rule("erase_then_delta").gates(x).erase, torch.sigmoid(-2 * torch.ones(1, H, 1)).double()
    )
    rule = make_rule("gla")
    torch.nn.init.zeros_(rule.to_keep.bias)
    torch.testing.assert_close(rule.gates(x).log_keep, torch.full((1, H, 1, K), math.log(0.5) / 16).double())


@pytest.mark.parametrize("max_beta", [1.0, 2.0])
def test_erase_then_delta_follows_its_recurrence(max_beta):
    rule = make_rule("erase_then_delta", max_beta=max_beta)
    x, *_ = make_inputs(rule)
    alpha, beta = kda_decay(rule, x), max_beta * torch.sigmoid(x @ rule.to_beta.weight.T).mT[..., None, None]
    gamma = torch.sigmoid(x @ rule.to_erase.weight.T - 2).mT[..., None, None]
    e = torch.einsum("bthr,hrk->bhtk", (x @ rule.to_hidden.weight.T).view(B, T, H, -1), rule.erase_key_weight)
    e = e / (e.square().sum(-1, keepdim=True) + 1e-6).sqrt()

    def step(t, S, k, v):
        S = S * alpha[:, :, t, None] @ (torch.eye(K) - gamma[:, :, t] * outer(e[:, :, t], e[:, :, t]))
        return S @ (torch.eye(K) - beta[:, :, t] * outer(k, k)) + beta[:, :, t] * outer(v, k)

    assert_rule_equals_loop(rule, step)


@pytest.mark.parametrize("decay", [False, True])
def test_delta_product_follows_its_paper(decay):
    """A token decays the memory once, then makes all its writes."""
    rule = make_rule("delta_product", steps=3, max_beta=2.0, decay=decay)
    x, q, *_ = make_inputs(rule)
    generator = torch.Generator().manual_seed(4)
    k, v = (torch.randn(B, H, T, 3, K, generator=generator, dtype=torch.float64) for _ in range(2))
    k = F.normalize(k, dim=-1)
    beta = 2 * torch.sigmoid(x @ rule.to_beta.weight.T).view(B, T, H, 3)
    alpha = head_decay(rule, x)[..., None, None] if decay else torch.ones(B, H, T, 1, 1, dtype=torch.float64)
    memory, reads = torch.zeros(B, H, K, K, dtype=torch.float64), []
    for t in range(T):
        memory = alpha[:, :, t] * memory
        for i in range(3):
            strength, key = beta[:, t, :, i, None, None], k[:, :, t, i]
            memory = memory @ (torch.eye(K) - strength * outer(key, key)) + strength * outer(v[:, :, t, i], key)
        reads.append((memory @ q[:, :, t, :, None])[..., 0])
    actual, _ = rule.scan(q, k.flatten(2, 3), v.flatten(2, 3), rule.gates(x), None, DEFAULT_CONTEXT)
    torch.testing.assert_close(actual, torch.stack(reads, 2))


def scan(gates, name="kda"):
    rule = make_rule(name)
    _, q, k, v = make_inputs(rule)
    return rule.scan(q, k, v, gates, None, DEFAULT_CONTEXT)[0]


def test_identities_between_the_rules():
    x, _, k, _ = make_inputs(make_rule("kda"))
    kda = make_rule("kda", max_beta=2.0).gates(x)
    wide_beta = kda.erase[..., None].expand(-1, -1, -1, K)
    scalar_decay = kda.log_keep[..., 0]
    per_channel_scalar = scalar_decay[..., None].expand_as(kda.log_keep)
    early = kda._replace(early_lookup=k * kda.log_keep.exp())
    cases = {
        "GDN-2 with equal gates is KDA": (kda._replace(erase=wide_beta, write=wide_beta), kda),
        "KDA with one decay is gated delta": (
            kda._replace(log_keep=per_channel_scalar),
            Gates(scalar_decay, kda.erase, kda.erase),
        ),
        "KDA without decay is delta": (
            kda._replace(log_keep=torch.zeros_like(kda.log_keep)),
            Gates(None, kda.erase, kda.erase),
        ),
        "KDA that looks nothing up is GLA": (
            Gates(kda.log_keep, torch.zeros_like(kda.erase)),
            Gates(kda.log_keep),
        ),
        "a lookup after the decay is an early lookup under the decayed key": (early, kda),
        "a decay of one number is the scalar decay": (Gates(per_channel_scalar), Gates(scalar_decay)),
    }
    for name, (special, general) in cases.items():
        torch.testing.assert_close(scan(special), scan(general), msg=lambda text, name=name: f"{name}: {text}")


def test_mamba2_is_gated_linear_attention_with_one_decay_and_scaled_values():
    rule = make_rule("mamba2")
    x, q, k, v = make_inputs(rule)
    gates = rule.gates(x)
    log_keep = gates.log_keep[..., None].expand(-1, -1, -1, K)
    expected = scan_with("gla", q, k, gates.write[..., None] * v, Gates(log_keep))
    torch.testing.assert_close(rule.scan(q, k, v, gates, None, DEFAULT_CONTEXT)[0], expected)


def test_rwkv7_that_removes_nothing_is_gated_linear_attention():
    rule = make_rule("rwkv7")
    x, q, k, v = make_inputs(rule)
    gates = rule.gates(x)._replace(removal=torch.zeros(B, H, T, K, dtype=torch.float64))
    expected = scan_with("gla", q, k * (1 - rule.write_mix[:, None]), v, Gates(gates.log_keep))
    torch.testing.assert_close(rule.scan(q, k, v, gates, None, DEFAULT_CONTEXT)[0], expected)


def test_erase_then_delta_that_erases_nothing_is_kda():
    rule = make_rule("erase_then_delta")
    x, q, k, v = make_inputs(rule)
    gates = rule.gates(x)
    actual, _ = rule.scan(q, k, v, gates._replace(erase=torch.zeros_like(gates.erase)), None, DEFAULT_CONTEXT)
    torch.testing.assert_close(actual, scan_with("kda", q, k, v, Gates(gates.log_keep, gates.write, gates.write)))


def test_comba_without_decay_and_query_correction_is_delta_whose_lookup_is_as_strong_as_its_write():
    rule = make_rule("comba", query_correction=0.0)
    x, q, k, v = make_inputs(rule)
    q = F.normalize(q, dim=-1) * K**-0.5  # the rule normalizes queries
    with torch.no_grad():
        rule.decay.log_rate.fill_(-math.inf)
        rule.lookup_strength.fill_(50.0)  # its sigmoid is 1
    gates = rule.gates(x)
    actual, _ = rule.scan(q, k, v, gates, None, DEFAULT_CONTEXT)
    expected = scan_with("delta", q, k, v, Gates(erase=gates.write, write=gates.write))
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-7)


def test_delta_product_with_one_write_and_decay_is_gated_delta():
    rule, gated = make_rule("delta_product", steps=1, decay=True), make_rule("gated_delta")
    x, q, k, v = make_inputs(rule)
    with torch.no_grad():
        gated.to_beta.weight.copy_(rule.to_beta.weight)
        gated.to_fade.weight.copy_(rule.decay.to_step.weight)
        gated.log_rate.copy_(rule.decay.log_rate)
        gated.fade_bias.copy_(rule.decay.bias)
    expected, _ = gated.scan(q, k, v, gated.gates(x), None, DEFAULT_CONTEXT)
    torch.testing.assert_close(rule.scan(q, k, v, rule.gates(x), None, DEFAULT_CONTEXT)[0], expected)


def scan_with(name, q, k, v, gates):
    return make_rule(name).scan(q, k, v, gates, None, DEFAULT_CONTEXT)[0]
