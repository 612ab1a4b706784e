"""Processes of PyTorch in one share: memory of one opened by another, and the children of fork and spawn."""

import os
import sys

import torch
import torch.multiprocessing as multiprocessing

MIB = 1 << 20


def reads(tensor, answer):
    """In another process: its share is the same, and so is the memory."""
    free, total = torch.cuda.mem_get_info()
    answer.put((total, tensor[:4].cpu().tolist()))
    tensor[:4] = torch.tensor([5, 6, 7, 8], dtype=torch.uint8, device="cpu")
    torch.cuda.synchronize()


def counts(size, answer):
    """In another process: how many tensors the rest of the share has room for."""
    held = []
    try:
        while True:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
    except torch.OutOfMemoryError:
        answer.put(len(held))


def main():
    limit = int(sys.argv[1])
    spawn = multiprocessing.get_context("spawn")
    answer = spawn.SimpleQueue()

    tensor = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    tensor[:4].copy_(torch.tensor([1, 2, 3, 4], dtype=torch.uint8))
    free = torch.cuda.mem_get_info()[0]
    child = spawn.Process(target=reads, args=(tensor, answer))
    child.start()
    assert answer.get() == (limit, [1, 2, 3, 4])
    child.join()
    assert child.exitcode == 0, child.exitcode
    assert tensor[:4].cpu().tolist() == [5, 6, 7, 8]
    assert torch.cuda.mem_get_info()[0] == free, "what the child had is free again"

    # Together they have one share.
    half = torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
    child = spawn.Process(target=counts, args=(64 * MIB, answer))
    child.start()
    count = answer.get()
    child.join()
    room = limit // 2 - 64 * MIB
    assert room // 2 < count * 64 * MIB < room, count
    del half

    # A child of fork cannot use CUDA once its parent has, and does no harm.
    pid = os.fork()
    if pid == 0:
        try:
            torch.empty(1, device="cuda")
        except RuntimeError as error:
            os._exit(0 if "forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert tensor[:4].cpu().tolist() == [5, 6, 7, 8]
    print("all checked")


if __name__ == "__main__":
    main()
