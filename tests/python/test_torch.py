# SPDX-License-Identifier: Apache-2.0
"""torch.ops.hpc: what torch's compiler and an engine need of the operators."""

import numpy as np
import pytest

import hpc
from conftest import require_device
from reference import canonical, expected

torch = pytest.importorskip("torch", reason="torch is not installed")


def sample(device, rows=4, columns=3000, k=100):
    generator = torch.Generator().manual_seed(rows * columns)
    scores = torch.randn(rows, columns, generator=generator)
    lengths = torch.tensor([columns, k, k + 1, 0][:rows], dtype=torch.int32)
    return scores.to(device), lengths.to(device), k


def buffers(scores, k):
    size = hpc.workspace_size(*scores.shape, k, device=scores.device)
    out = torch.full((scores.shape[0], k), 7, dtype=torch.int32, device=scores.device)
    return {"out": out, "workspace": torch.zeros(size, dtype=torch.uint8, device=scores.device)}


def same(got, scores, lengths, k):
    scores = scores.cpu().numpy()
    lengths = None if lengths is None else lengths.cpu().numpy()
    np.testing.assert_array_equal(canonical(got.cpu().numpy(), scores, lengths), expected(scores, k, lengths))


def test_schemas():
    require_device("cpu")
    assert str(torch.ops.hpc.topk.default._schema) == (
        "hpc::topk(Tensor scores, Tensor? lengths, int k, Tensor? row_starts=None, Tensor? num_rows=None, "
        'str kernel="auto") -> Tensor'
    )
    assert str(torch.ops.hpc.topk.out._schema) == (
        "hpc::topk.out(Tensor scores, Tensor? lengths, int k, Tensor? row_starts=None, Tensor? num_rows=None, "
        'str kernel="auto", *, Tensor(a!) out, Tensor(b!) workspace) -> ()'
    )


def test_both_forms(device):
    scores, lengths, k = sample(device)
    got = torch.ops.hpc.topk(scores, lengths, k)
    assert got.dtype == torch.int32
    assert got.device == scores.device
    same(got, scores, lengths, k)
    given = buffers(scores, k)
    assert torch.ops.hpc.topk.out(scores, lengths, k, **given) is None
    same(given["out"], scores, lengths, k)
    same(torch.ops.hpc.topk(scores, None, k), scores, None, k)


def test_out_and_workspace_are_each_optional_in_hpc_topk(device):
    scores, lengths, k = sample(device)
    given = buffers(scores, k)
    assert hpc.topk(scores, k, lengths, out=given["out"]) is given["out"]
    same(given["out"], scores, lengths, k)
    same(hpc.topk(scores, k, lengths, workspace=given["workspace"]), scores, lengths, k)
    with pytest.raises(ValueError, match="k = 0: must be between 1 and 4096"):
        hpc.topk(scores, 0, workspace=given["workspace"])
    with pytest.raises(ValueError, match=r"scores\.ndim = 1: must be 2"):
        hpc.topk(scores[0], 1, out=given["out"])


def test_numpy_gives_the_same(device):
    scores, lengths, k = sample(device)
    ours = hpc.topk(scores, k, lengths).cpu().numpy()
    numpy_scores, numpy_lengths = scores.cpu().numpy(), lengths.cpu().numpy()
    np.testing.assert_array_equal(
        canonical(ours, numpy_scores, numpy_lengths),
        canonical(hpc.topk(numpy_scores, k, numpy_lengths), numpy_scores, numpy_lengths),
    )


def test_views_are_read_in_place(device):
    base = torch.randn(5, 4100, device=device)
    scores = base[1:4, 3:4000]
    same(hpc.topk(scores, 64), scores, None, 64)
    wide = torch.full((3, 70), 7, dtype=torch.int32, device=device)
    hpc.topk(scores, 64, out=wide[:, 3:67])
    same(wide[:, 3:67], scores, None, 64)
    assert (wide[:, :3] == 7).all()
    assert (wide[:, 67:] == 7).all()


def test_scores_that_require_grad(device):
    scores, lengths, k = sample(device)
    got = hpc.topk(scores.requires_grad_(), k, lengths)
    assert not got.requires_grad
    same(got, scores.detach(), lengths, k)


def test_statistics(device):
    scores, lengths, k = sample(device)
    columns, statistics = torch.ops.hpc.topk_counted(scores, lengths, k)
    same(columns, scores, lengths, k)
    rows, candidates, rescued, recovered, _tightened, scores_read = statistics.tolist()
    assert rows == 2
    assert candidates >= 2 * k
    assert rescued + recovered <= rows
    assert scores_read >= 3000 + k + 1


@pytest.mark.parametrize("operator", ["topk", "topk.out", "_topk", "_topk.out", "topk_counted"])
def test_opcheck(device, operator):
    # Rows no longer than k: opcheck compares two calls, and the order of longer rows is free.
    scores, _, k = sample(device)
    lengths = torch.tensor([k, 50, 7, 0], dtype=torch.int32, device=device)
    starts = torch.tensor([0, 5, 2995, 3000], dtype=torch.int32, device=device)
    rows = torch.tensor([4], dtype=torch.int32, device=device)
    name, _, overload = operator.partition(".")
    operator = getattr(getattr(torch.ops.hpc, name), overload or "default")
    for arguments in ((scores[:, :64], None, k, None, None, "auto"), (scores, lengths, k, starts, rows, "auto")):
        results = torch.library.opcheck(operator, arguments, buffers(arguments[0], k) if overload else {})
        assert set(results.values()) == {"SUCCESS"}


def test_fake_tensors(device):
    from torch._subclasses.fake_tensor import FakeTensorMode

    require_device(device)
    with FakeTensorMode():
        scores = torch.empty(4, 3000, device=device)
        got = torch.ops.hpc.topk(scores, None, 16)
        assert (got.shape, got.dtype, got.device) == ((4, 16), torch.int32, scores.device)
        with pytest.raises(RuntimeError, match=r"scores\.ndim = 1: must be 2"):
            torch.ops.hpc.topk(scores[0], None, 16)


def test_compiled_without_a_graph_break(device):
    @torch.compile(fullgraph=True)
    def attend(queries, keys, lengths):
        scores = torch.relu(queries @ keys.T)
        columns = hpc.topk(scores, 32, lengths)
        return scores, columns, scores.gather(1, columns.clamp(min=0).long()).sum(1)

    for rows in (3, 5):
        queries, keys = torch.randn(rows, 16, device=device), torch.randn(900, 16, device=device)
        lengths = torch.arange(880, 880 + rows, dtype=torch.int32, device=device)
        scores, columns, total = attend(queries, keys, lengths)
        same(columns, scores, lengths, 32)
        torch.testing.assert_close(total, scores.gather(1, columns.long()).sum(1))


def test_compiled_with_buffers(device):
    @torch.compile(fullgraph=True)
    def choose(scores, lengths, out, workspace):
        torch.ops.hpc.topk.out(scores * 2, lengths, 100, kernel="auto", out=out, workspace=workspace)
        hpc.topk(scores * 2, 100, lengths, out=out, workspace=workspace)
        return out + 1, torch.ops.hpc.topk(scores * 3, lengths, 100, kernel="auto")

    scores, lengths, k = sample(device)
    given = buffers(scores, k)
    got, allocated = choose(scores, lengths, **given)
    same(got - 1, scores, lengths, k)
    same(allocated, scores, lengths, k)
    same(given["out"], scores, lengths, k)


def test_a_graph_replays_with_other_inputs():
    require_device("cuda")
    scores, lengths, k = sample("cuda")
    given = buffers(scores, k)
    torch.ops.hpc.topk.out(scores, lengths, k, **given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.ops.hpc.topk.out(scores, lengths, k, **given)
    for seed in range(3):
        torch.manual_seed(seed)
        scores.copy_(torch.randn_like(scores))
        lengths.copy_(torch.randint(0, scores.shape[1] + 1, lengths.shape, dtype=torch.int32))
        given["out"].fill_(7)
        given["workspace"].fill_(255)
        graph.replay()
        same(given["out"], scores, lengths, k)


def test_a_call_on_a_side_stream():
    require_device("cuda")
    scores, lengths, k = sample("cuda")
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        later = scores * 2  # only this stream knows when it is there
        got = hpc.topk(later, k, lengths)
    side.synchronize()
    same(got, later, lengths, k)


def test_an_engines_call_allocates_nothing():
    require_device("cuda")
    scores, lengths, k = sample("cuda")
    given = buffers(scores, k)
    torch.ops.hpc.topk.out(scores, lengths, k, **given)
    torch.cuda.synchronize()
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.ops.hpc.topk.out(scores, lengths, k, **given)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
