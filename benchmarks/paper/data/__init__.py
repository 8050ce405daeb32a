"""The paper's three sets of images, read from their official files."""

from .files import folder
from .mnist import Digits, mnist
from .omniglot import Alphabets, omniglot

__all__ = ["Alphabets", "Digits", "folder", "mnist", "omniglot"]
