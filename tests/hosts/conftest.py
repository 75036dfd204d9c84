"""What all tests of hosts share."""

import pytest


@pytest.fixture
def anyio_backend() -> str:
    """The hosts run on asyncio; most of them on nothing else."""
    return "asyncio"
