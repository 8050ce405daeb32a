"""The one error that tnshare raises for a user's mistake, and the one warning."""


class TnshareError(ValueError):
    """Something given cannot be used; the text says what was given, what is allowed, what to do."""


class TnshareWarning(UserWarning):
    """Something is done as asked, and is hardly what was meant; the text says why, and what to do."""
