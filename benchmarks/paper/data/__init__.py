"""The paper's three sets of images, read from their official files."""

from .fetching import folder
from .mnist_files import Digits, mnist
from .omniglot_files import Alphabets, omniglot

__all__ = ["Alphabets", "Digits", "folder", "mnist", "omniglot"]
