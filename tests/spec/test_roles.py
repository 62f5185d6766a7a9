"""The table of roles: what its rows name is there."""

from importlib.util import find_spec

import pytest

from elastic.spec.job import JobSpec
from elastic.spec.roles import FLEET, ROLES, Keeper


@pytest.mark.parametrize("role", ROLES.values(), ids=str)
def test_a_row_names_settings_and_a_program_that_exist(role):
    settings = {
        role.number, role.failures, role.resource_request, role.resource_limit, role.priority,
    } - {None}  # fmt: skip
    follow = {name for name, value in vars(JobSpec).items() if isinstance(value, property)}
    assert settings <= JobSpec.model_fields.keys() | follow
    assert find_spec(role.module) is not None


def test_what_the_master_launches_has_a_number_and_a_limit_of_failures():
    """It would otherwise know neither how many it is to launch nor when it is to give up."""
    assert all(role.number is not None and role.failures is not None for role in FLEET)
    assert all(role.keeper is Keeper.MASTER and role.words is not None for role in FLEET)


def test_one_role_at_most_is_scaled():
    """`elastic scale` names none."""
    assert [role.name for role in ROLES.values() if role.is_scaled] == ["worker"]


def test_a_role_of_which_there_is_one_has_that_limit():
    spec = JobSpec.model_construct(num_workers=None)
    assert str(ROLES["master"].limits(spec)) == "1"
