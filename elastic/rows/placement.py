"""Which parameter server has a row: a pure function of its table, its id and how many there are.

So is which part of a table's `max_rows` each server has.

What is part of a job is the function: every worker and every server must come to the same. Cuts do
not depend on it, so that a job may go on with another number of servers.
"""

from dataclasses import replace
from typing import Final

import numpy as np

from elastic.rows.base import CANDIDATES, Ids, Life
from elastic.rows.ids import mixed, to_ids
from elastic.rows.index import Positions

_HALF: Final = 32
"""Bits of an id's hash that choose its server."""


def servers_of(table: str, ids: Ids, num_servers: int) -> Positions:
    """The server of each row, from 0; ids that follow each other are spread over all.

    Args:
        table: Its name, so that one id is not on the same server in all tables. Where an id is
            counted, it gets its row.
        ids: In any order.
        num_servers: How many there are, from 1 to 2**31.
    """
    key = mixed(to_ids([table.removesuffix(CANDIDATES)]).view(np.uint64))
    words = mixed(ids.view(np.uint64) ^ key) >> np.uint64(_HALF)
    return ((words * np.uint64(num_servers)) >> np.uint64(_HALF)).view(np.int64)


def spread_rows(table: str, ids: Ids, num_servers: int) -> list[Positions]:
    """For each server, where in `ids` those of its rows stand, ascending."""
    if num_servers == 1:
        return [np.arange(len(ids))]
    servers = servers_of(table, ids, num_servers)
    return [np.flatnonzero(servers == server) for server in range(num_servers)]


def life_on(life: Life, server: int, num_servers: int) -> Life:
    """What a server decides by, which looks at its own rows alone.

    Args:
        life: Of the table, whose `max_rows` are all servers' together.
        server: From 0.
        num_servers: How many there are.
    """
    if life.max_rows is None:
        return life
    first, end = (each * life.max_rows // num_servers for each in (server, server + 1))
    return replace(life, max_rows=end - first)
