# SPDX-License-Identifier: Apache-2.0
import torch

import hpc

device = "cuda" if torch.cuda.is_available() else "cpu"
scores = torch.randn(64, 131072, device=device)
lengths = torch.full((64,), 100_000, dtype=torch.int32, device=device)  # valid scores of each row
columns = hpc.topk(scores, 2048, lengths)  # int32 [64, 2048]

# An engine's form: everything preallocated, so that a CUDA graph can hold the call.
out = torch.empty(64, 2048, dtype=torch.int32, device=device)
size = hpc.workspace_size(64, 131072, 2048, device=scores.device)
workspace = torch.empty(size, dtype=torch.uint8, device=device)
torch.ops.hpc.topk.out(scores, lengths, 2048, out=out, workspace=workspace)

expected = scores[:, :100_000].topk(2048).values
for result in (columns, out):
    values = scores.gather(1, result.long()).sort(descending=True).values
    assert torch.equal(values, expected)
