"""The one error that reading and preprocessing raise."""

from __future__ import annotations


class PreprocessError(ValueError):
    """A raw file can't become the tensor that the contract describes."""

    def __init__(self, step: str, what: str, expected: str, do: str, code: str = "KP103") -> None:
        """Keep the three parts of the message.

        Args:
            step: where it happened: ``read``, ``decode``, ``steps`` or a step's name.
            what: what happened, with values.
            expected: what would have been right.
            do: what to do.
            code: the finding this becomes.
        """
        super().__init__(f"{what} (expected {expected}). {do}")
        self.step = step
        self.what = what
        self.expected = expected
        self.do = do
        self.code = code
