# SPDX-License-Identifier: Apache-2.0
"""How the scan warps of kernels/detail/pipeline.cuh share a ring and a candidate buffer, modelled in random schedules.

A warp that finds no room keeps its stage, so the producer cannot fill that stage anew. All warps have to come to the
meeting that makes room, those too that wait for that very stage.
"""

import random

import pytest

WARPS, STAGES, ROW, CAPACITY, K = 12, 4, 25, 100, 40


def scan(seed: int, density: float, *, waiting_warps_look: bool) -> bool:
    """Scan one row of ROW stages in the schedule of `seed`; False if nobody can move before it is done."""
    rng = random.Random(seed)
    admits = [[rng.randint(1, 8) if rng.random() < density else 0 for _ in range(ROW)] for _ in range(WARPS)]
    passed = [0] * WARPS  # stages that each warp has scanned and released
    meeting = [False] * WARPS
    filled = count = 0
    while True:
        if all(meeting):
            if min(passed) == ROW:
                return True
            assert count > CAPACITY
            count = K  # tightened: less is admitted from here on
            admits = [[n // 2 if rng.random() < 0.5 else n for n in row] for row in admits]
            meeting = [False] * WARPS
            continue
        may_fill = filled < ROW and min(passed) > filled - STAGES
        movers = [
            warp
            for warp in range(WARPS)
            if not meeting[warp]
            and (passed[warp] == ROW or filled > passed[warp] or (waiting_warps_look and count > CAPACITY))
        ]
        if not movers and not may_fill:
            return False
        mover = rng.choice([*movers, *([-1] if may_fill else [])])
        if mover < 0:
            filled += 1
        elif passed[mover] == ROW or filled <= passed[mover]:
            meeting[mover] = True
        else:
            found = admits[mover][passed[mover]]
            count += found
            if found and count > CAPACITY:
                meeting[mover] = True
            else:
                passed[mover] += 1


@pytest.mark.parametrize("density", [0.1, 0.3, 0.6, 1.0])
def test_every_warp_comes_to_the_meeting(density):
    assert all(scan(seed, density, waiting_warps_look=True) for seed in range(200))


def test_a_warp_that_only_waits_is_a_deadlock():
    assert not all(scan(seed, 0.3, waiting_warps_look=False) for seed in range(20))
