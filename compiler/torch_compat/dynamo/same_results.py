"""torch's own comparison of eager and compiled results, by which it judges reports."""

from collections.abc import Mapping

TOLERANCE = 1e-4
"""The default of `torch._dynamo.utils.same`, absolute and relative."""


def are_same(
    eager: Mapping[str, object],
    compiled: Mapping[str, object],
    reference: Mapping[str, object] | None,
) -> tuple[bool, str]:
    """Compare results by name with `torch._dynamo.utils.same`.

    Args:
        reference: The float64 results, if there are any.

    Returns:
        Its answer, and its last message; an assertion that it raises is a no.
    """
    from torch._dynamo.utils import same

    messages: list[str] = []

    def log(message: str, *values: object) -> None:
        messages.append(message % values if values else message)

    try:
        answer = same(
            dict(eager),
            dict(compiled),
            dict(reference) if reference is not None else None,
            tol=TOLERANCE,
            equal_nan=True,
            log_error=log,
        )
    except AssertionError as error:
        return False, str(error)
    except RuntimeError as error:  # `allclose` of two shapes
        return False, str(error).partition("\n")[0]
    return bool(answer), messages[0] if messages else ""
