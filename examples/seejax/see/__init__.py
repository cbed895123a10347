"""Pictures of what JAX really did, for a notebook (HTML) and for a terminal (text).

>>> from seejax import see
>>> double = see.calls(lambda x: 2 * x)
>>> float(double(3.0)), float(double(4.0))
(6.0, 8.0)
>>> [call.outcome for call in double.calls]
['compiled', 'cached']
"""

from typing import TYPE_CHECKING

from seejax import lazy

if TYPE_CHECKING:
    from seejax.see._axes import Axes, Operation, axes
    from seejax.see._calls import Call, Calls, calls
    from seejax.see._grad import Crossing, Grad, Step, grad
    from seejax.see._html import ASSETS, STATIC
    from seejax.see._kernel import Kernel, Launch, Operand, kernel
    from seejax.see._keys import Keys, Node, Use, keys
    from seejax.see._memory import Argument, Memory, Need, memory
    from seejax.see._modules import Module
    from seejax.see._picture import Picture
    from seejax.see._profile import Event
    from seejax.see._shards import Block, Layout, Shards, shards
    from seejax.see._timeline import Timeline, timeline
    from seejax.see._trace import Equation, Trace, trace
    from seejax.see._tree import Difference, Leaf, Tree, tree

__all__ = [
    "ASSETS",
    "STATIC",
    "Argument",
    "Axes",
    "Block",
    "Call",
    "Calls",
    "Crossing",
    "Difference",
    "Equation",
    "Event",
    "Grad",
    "Kernel",
    "Keys",
    "Launch",
    "Layout",
    "Leaf",
    "Memory",
    "Module",
    "Need",
    "Node",
    "Operand",
    "Operation",
    "Picture",
    "Shards",
    "Step",
    "Timeline",
    "Trace",
    "Tree",
    "Use",
    "axes",
    "calls",
    "grad",
    "kernel",
    "keys",
    "memory",
    "shards",
    "timeline",
    "trace",
    "tree",
]

__getattr__, __dir__ = lazy.attach(__name__)
