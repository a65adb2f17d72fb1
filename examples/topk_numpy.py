# SPDX-License-Identifier: Apache-2.0
import numpy as np

import hpc

scores = np.random.default_rng(0).standard_normal((64, 131072), dtype=np.float32)
columns = hpc.topk(scores, 2048)  # int32 [64, 2048], in no particular order

smallest_selected = np.take_along_axis(scores, columns, axis=1).min(axis=1)
assert (np.sum(scores > smallest_selected[:, None], axis=1) < 2048).all()
print(hpc.plan(64, 131072, 2048, device="h200"))  # which kernel an H200 would run, why, and what it needs
