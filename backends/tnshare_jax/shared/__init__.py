"""T pytrees of one structure as one."""

from ._restore import restore
from ._share import share
from ._shared_tree import Shared
