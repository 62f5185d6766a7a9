"""Every store of rows does what the others do."""

import pytest
from hypothesis import settings
from support.row_store_contract import FORMS, RowStoreContract, RowStoreMachine

from elastic.rows.memory import MemoryRows


class InMemory:
    def opened(self, forms=FORMS):
        store = MemoryRows()
        store.open(forms)
        return store


class TestMemory(RowStoreContract):
    @pytest.fixture
    def harness(self):
        return InMemory()


class MemoryMachine(RowStoreMachine):
    def open_store(self):
        return InMemory().opened()


TestMemorySchedules = MemoryMachine.TestCase
TestMemorySchedules.settings = settings(deadline=None, stateful_step_count=40)
