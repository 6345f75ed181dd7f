import pytest

from tests.helpers.c_program import compile_program


@pytest.fixture(scope="session")
def program(tmp_path_factory):
    """The C program that calls packages."""
    return compile_program(tmp_path_factory.mktemp("c"))
