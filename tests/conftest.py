"""Profiles of Hypothesis, and how many combinations the sweep has compared.

`--hypothesis-profile=thorough` tries ten times as many cases.
"""

from typing import Any

from hypothesis import settings

settings.register_profile("genkit", max_examples=200, deadline=None, derandomize=True)
settings.register_profile("thorough", max_examples=2000, deadline=None, derandomize=False)
settings.load_profile("genkit")

# --- the sweep of architectures and cache managers ---------------------------------------


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Add up what tests have recorded as `combinations`, those run by other workers included."""
    compared = sum(
        int(value)
        for report in terminalreporter.getreports("")  # recorded at the end of a test: no category
        for name, value in getattr(report, "user_properties", ())
        if name == "combinations" and report.when == "teardown"
    )
    if compared:
        terminalreporter.write_sep("-", f"the sweep has compared {compared:,} combinations")
