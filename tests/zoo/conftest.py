import pytest
import torch


@pytest.fixture(autouse=True, scope="package")
def one_torch_thread():
    """Models this small get slower with more threads, many times so on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
