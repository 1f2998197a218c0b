"""A home that hermes-agent made, which is not part of this repository, and the mark of tests that read it."""

from __future__ import annotations

from pathlib import Path

import pytest

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures"
needs_example_home = pytest.mark.skipif(
    not FIXTURES.is_dir(),
    reason="needs a home that hermes-agent made, in ../shared/fixtures; homes made to its format are tested anyway",
)
