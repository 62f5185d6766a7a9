"""What is known of the lives of a master, whatever ended their container."""

import errno
import os

from elastic.platforms.kubernetes.supervisor import NAME, LifeLog


def test_ends_are_told_as_a_node_would(tmp_path):
    log = LifeLog(tmp_path)
    log.begin()
    log.end(137, is_memory=True, words="")
    log.begin()
    log.end(1, is_memory=False, words="ValueError: bad")
    log.begin()
    lives = log.read()
    assert [life.number for life in lives] == [0, 1, 2]
    assert lives[0].terminated == {"exitCode": 137, "reason": "OOMKilled", "message": ""}
    assert lives[1].terminated == {"exitCode": 1, "reason": "Error", "message": "ValueError: bad"}
    assert lives[2].terminated is None
    assert lives[0].ended_s <= lives[1].ended_s


def test_a_life_that_ended_with_its_container_is_not_lost(tmp_path):
    first = LifeLog(tmp_path)
    first.begin()
    second = LifeLog(tmp_path)
    second.begin()
    lives = second.read()
    assert [life.terminated for life in lives] == [None, None]
    assert lives[0].container != lives[1].container


def test_a_line_that_was_cut_off_spoils_no_other(tmp_path):
    log = LifeLog(tmp_path)
    log.begin()
    with (tmp_path / NAME).open("ab") as file:
        file.write(b'\n{"exitCode": 13')
    log.begin()
    assert [life.terminated for life in LifeLog(tmp_path).read()] == [None, None]


def test_a_full_disk_ends_nothing(tmp_path, monkeypatch, caplog):
    def full(*_args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    LifeLog(tmp_path).begin()
    assert "No space left on device" in caplog.text


def test_before_the_first_there_is_none(tmp_path):
    assert LifeLog(tmp_path).read() == []
