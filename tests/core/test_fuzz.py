"""Spoilt messages against the decoder, in a process that may take little memory: no crash, no surprise."""

import subprocess
import sys
from pathlib import Path

import pytest

CHILD = """
import random, resource, sys
import numpy as np
import fedclust as fc
from fedclust.core.envelope import Call, SealedAnswer
from fedclust.core.errors import WireError
from fedclust.testing.conformance import make_sites

count, seed = int(sys.argv[1]), int(sys.argv[2])
seen = []

class Watch:
    def __init__(self, engine):
        self.engine, self.parties = engine, engine.parties

    def exchange(self, calls, *, timeout, quorum):
        replies = self.engine.exchange(calls, timeout=timeout, quorum=quorum)
        seen.extend((Call.decode, call.wire_bytes) for call in list(calls.values())[:1])
        seen.extend((SealedAnswer.decode, reply.wire_bytes) for reply in list(replies.values())[:1])
        return replies

for mode in ("plain", "secure", "blind"):
    for split in ("rows", "columns"):
        parts = make_sites(rows=40)
        if split == "columns":
            X = np.concatenate(list(parts.values()))
            parts = {name: X[:, [i]] for i, name in enumerate("abc")}
        fed = fc.Federation.local(parts, aggregation=mode, split=split)
        fed.use_engine(Watch(fed.engine))
        fc.FuzzyCMeans(2, max_iter=2, random_state=0).fit(fed)
fed = fc.Federation.local(make_sites(rows=40), aggregation="secure")
fed.use_engine(Watch(fed.engine))
fc.KMeans(2, max_iter=2, random_state=0, quorum=0.75, scale="standardise").fit(fed)
samples = [(how, data) for how, data in seen if len(data) < 4000]
kinds = {data[:60] for _, data in samples}
assert len(samples) > 60, len(samples)

size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + (64 << 20), size + (64 << 20)))
rng = random.Random(seed)
odd = [0, 1, 0x7F, 0x80, 0xFF]
refused = 0
for _ in range(count):
    how, data = samples[rng.randrange(len(samples))]
    spoilt = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        what = rng.randrange(6)
        at = rng.randrange(len(spoilt)) if spoilt else 0
        if what == 0 and spoilt:
            spoilt[at] = rng.choice(odd)
        elif what == 1 and spoilt:
            spoilt[at] ^= 1 << rng.randrange(8)
        elif what == 2:
            del spoilt[at:]
        elif what == 3:
            spoilt[at:at] = rng.randbytes(rng.randrange(1, 9))
        elif what == 4:
            spoilt[at : at + 4] = rng.choice((b"\\xff\\xff\\xff\\xff", b"\\0\\0\\0\\x80", b"\\0\\0\\0\\x40"))
        else:
            other = samples[rng.randrange(len(samples))][1]
            spoilt[at:] = other[rng.randrange(len(other)) :]
    try:
        how(bytes(spoilt))
    except WireError:
        refused += 1
print(refused)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory cap needs Linux")
@pytest.mark.parametrize(
    ("count", "seed"), [(100_000, 0), *(pytest.param(1_250_000, seed, marks=pytest.mark.long) for seed in range(1, 9))]
)
def test_spoilt_messages_are_refused_or_are_sound(count, seed):
    """Each either decodes to what it says or is a WireError; ten million of them in the long run."""
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(count), str(seed)], capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr[-2000:]
    assert int(child.stdout) > count * 0.4
