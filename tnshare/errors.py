"""The one error that tnshare raises for a user's mistake."""


class TnshareError(ValueError):
    """Something given cannot be used; the text says what was given, what is allowed, what to do."""
