"""Tests of users: the pytest plugin, and `assert_compiles`."""
