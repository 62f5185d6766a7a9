"""Where the kernel counts what it has killed for memory."""

import pytest

from elastic.platforms.process import count_kills, own_counter


def cgroups(tmp_path, *files):
    for name in files:
        path = tmp_path / "cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    return tmp_path / "cgroup"


@pytest.mark.parametrize(("own", "files", "counter"), [
    pytest.param("0::/jobs/one\n", ["jobs/one/memory.events", "memory.events"],
                 "jobs/one/memory.events", id="version-2"),
    pytest.param("0::/kubepods/pod1\n", ["memory.events"], "memory.events",
                 id="version-2-in-a-container"),
    pytest.param("8:pids:/docker/x\n4:cpu,memory:/docker/x\n",
                 ["memory/docker/x/memory.oom_control", "memory/memory.oom_control"],
                 "memory/docker/x/memory.oom_control", id="version-1"),
    pytest.param("4:memory:/docker/x\n0::/docker/x\n", ["memory/memory.oom_control"],
                 "memory/memory.oom_control", id="version-1-in-a-container"),
    pytest.param("0::/\n", [], None, id="no-memory-controller"),
])  # fmt: skip
def test_the_counter_of_the_own_cgroup_is_found(tmp_path, own, files, counter):
    (tmp_path / "own").write_text(own)
    root = cgroups(tmp_path, *files)
    found = own_counter(root, tmp_path / "own")
    assert found == (None if counter is None else root / counter)
    assert count_kills(found) == (0 if counter is None else 3)


def test_without_cgroups_nothing_is_counted(tmp_path):
    assert own_counter(tmp_path, tmp_path / "none") is None
    assert count_kills(tmp_path / "gone") == 0
