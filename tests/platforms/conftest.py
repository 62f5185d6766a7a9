import pytest

pytest.register_assert_rewrite("support.platform_contract", "support.jobs_contract")
