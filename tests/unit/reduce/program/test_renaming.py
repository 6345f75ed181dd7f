"""Global names of a program get others where they clash; nothing else does."""

import ast
import textwrap

from ctk.toolkit.reduce.program.renaming import bindings_of, clashing, rename_names

PROGRAM = """
    import numpy as np
    from module import leaves
    if True:
        import other as play

    def replace(a, leaves=3):
        np.random.choice(5, replace=True)
        return leaves + play.x + [leaves for leaves in a][0]

    class Net:
        replace = 1

        def play(self):
            return self.play() + replace(leaves=leaves)

    def f():
        global leaves
        leaves = 4
        return lambda play: play + leaves

    match {}:
        case {**play}:
            play()

    def g(a):
        match a:
            case {**replace}:
                return replace
"""

EXPECTED = """
    import numpy as np
    from module import leaves as leaves_
    if True:
        import other as play_

    def replace_(a, leaves=3):
        np.random.choice(5, replace=True)
        return leaves + play_.x + [leaves for leaves in a][0]

    class Net:
        replace = 1

        def play(self):
            return self.play() + replace_(leaves=leaves_)

    def f():
        global leaves_
        leaves_ = 4
        return lambda play: play + leaves_

    match {}:
        case {**play_}:
            play_()

    def g(a):
        match a:
            case {**replace}:
                return replace
"""


def tree(text: str) -> ast.Module:
    return ast.parse(textwrap.dedent(text))


def test_only_globals_are_renamed():
    found = rename_names(tree(PROGRAM), {"replace", "leaves", "play"})
    assert ast.dump(found) == ast.dump(tree(EXPECTED))


def test_what_binds_the_same_does_not_clash():
    theirs = bindings_of(tree("import torch.nn as nn\nfrom math import sin\nx = y = 1"))
    assert theirs == {"nn": "torch.nn", "sin": "math.sin", "x": "", "y": ""}
    ours = bindings_of(tree("from torch import nn\nfrom cmath import sin\nx = 2"))
    assert clashing(theirs, ours) == {"sin", "x"}
