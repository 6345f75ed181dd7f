"""A copy that was cut down does what the file does, and holds nothing that its names do not need.

A row is a file (or several) with `fold`, which a case names. Beside it stand a secret, and the
functions of a program that reads a private path: they must go, unless the row says `WHOLE`.
"""

import sys
from collections.abc import Mapping
from itertools import count
from pathlib import Path

import pytest

from ctk.compiler.usercode.python_files import load_file
from ctk.toolkit.case.usercode.slicing import slice_files

BESIDE = """
# hush-hush: a comment
API_KEY = "hush-hush"

def model():
    return open("/private/model")

def inputs():
    return open("/private/inputs").read() + API_KEY

def config():
    return {"key": API_KEY}

class Loader:
    path = "/private/data"

if __name__ == "__main__":
    print(inputs())
"""

ROWS: dict[str, str] = {
    "plain": "def fold(x):\n    return x + 1\n",
    "constant": "EPS = 2\ndef fold(x):\n    return x + EPS\n",
    "annotated": "EPS: int = 2\ndef fold(x):\n    return x + EPS\n",
    "tuple": "A, (B, *C) = 1, (2, 3, 4)\ndef fold(x):\n    return x + B + sum(C)\n",
    "augmented": "TOTAL = 1\nTOTAL += 2\nTOTAL *= 3\ndef fold(x):\n    return TOTAL\n",
    "one_line": "A = 1; B = A + 1\ndef fold(x):\n    return x + B\n",
    "calls": "def a(x): return b(x)\ndef b(x): return x + 1\ndef fold(x): return a(x)\n",
    "circle": "def even(x): return x == 0 or odd(x - 1)\n"
    "def odd(x): return x != 0 and even(x - 1)\ndef fold(x): return even(x)\n",
    "base_class": "class Base:\n    def run(self, x): return x + self.step\n"
    "class Fold(Base):\n    step = 2\nfold = Fold().run\n",
    "metaclass": "class Meta(type):\n    def __call__(cls, x): return x * 7\n"
    "class fold(metaclass=Meta): ...\n",
    "dataclass": "from dataclasses import dataclass, field\ndef made(): return [1, 2]\n"
    "@dataclass(frozen=True)\nclass Fold:\n    steps: list[int] = field(default_factory=made)\n"
    "    def __call__(self, x): return x + len(self.steps)\nfold = Fold()\n",
    "decorator": "def twice(f):\n    return lambda x: f(f(x))\n@twice\ndef fold(x): return x + 1\n",
    "decorator_with_argument": "TIMES = 3\ndef times(n):\n    def wrap(f):\n"
    "        def inner(x):\n            for _ in range(n): x = f(x)\n            return x\n"
    "        return inner\n    return wrap\n@times(TIMES)\ndef fold(x): return x + 1\n",
    "shared_decorator": "import time\ndef timed(f):\n    def inner(*args):\n"
    "        time.monotonic()\n        return f(*args)\n    return inner\n"
    "@timed\ndef fold(x): return x + 1\n@timed\ndef private(): open('/private/x')\n",
    "counter": "COUNT = 0\ndef bump():\n    global COUNT\n    COUNT += 1\n    return COUNT\n"
    "bump()\ndef fold(x):\n    return x + bump() + COUNT\n",
    "made_by_a_function": "def init():\n    global STATE\n    STATE = 5\ninit()\n"
    "def fold(x):\n    return x + STATE\n",
    "nested_function": "K = 4\ndef fold(x):\n    y = x\n    def inner():\n"
    "        nonlocal y\n        y += K\n        return y\n    return inner()\n",
    "own_names": "def fold(x, inputs=1):\n    model = config = x\n"
    "    return [API_KEY for API_KEY in (model, config, inputs)]\n",
    "own_class_names": "class Fold:\n    def model(self, x): return x.real\n"
    "def fold(x): return Fold().model(x)\n",
    "lambda": "ONE = 1\nfold = lambda x, y=ONE: x + y + ONE\n",
    "comprehension": "NAMES = [1, 2]\nK = 3\n"
    "def fold(x): return {n: [n * K for m in NAMES if m > n] for n in NAMES}\n",
    "walrus": "if (WIDTH := 3) > 2:\n    MODE = 'wide'\n"
    "def fold(x): return MODE, WIDTH, (y := x)\n",
    "walrus_in_comprehension": "SEEN = [LAST := n for n in range(4)]\ndef fold(x): return LAST\n",
    "f_string": "UNIT = 'mm'\nW = 5\ndef fold(x): return f'{x:{W}} {UNIT!r} {f\"{W}\"}'\n",
    "defaults": "A = 1\ndef default(): return A\n"
    "def fold(x, y=default(), *, z=A): return x + y + z\n",
    "class_attribute": "STEP = 2\nclass Fold:\n    step = STEP\n    steps = [step, STEP]\n"
    "    @staticmethod\n    def run(x): return x + Fold.step\nfold = Fold.run\n",
    "class_name_bound_twice": "width = 2\nclass Fold:\n    width = width + 1\n"
    "def fold(x): return Fold.width\n",
    "enum": "import enum\nclass Mode(enum.Enum):\n    A = 'a'\n    B = 'b'\n"
    "def fold(x): return Mode('a').name, Mode.B.value\n",
    "literal": "from typing import Literal\n"
    "def fold(x: Literal['model', 'inputs'] = 'model'): return x\n",
    "annotation_in_quotes": "from typing import get_type_hints\nclass Node: ...\n"
    "def fold(x: 'Node | None') -> 'list[Node]': return len(get_type_hints(fold))\n",
    "future": "from __future__ import annotations\nclass Node: ...\n"
    "def fold(x: Node): return fold.__annotations__['x']\n",
    "type_alias": "from typing import TypeVar\nPair = tuple[int, int]\nT = TypeVar('T')\n"
    "def fold(x: T) -> Pair: return (x, x)\n",
    "match": "ONE = 1\nclass Names:\n    TWO = 2\ndef fold(x):\n    match x:\n"
    "        case Names.TWO: return 'two'\n        case int(n) if n > ONE: return n\n"
    "        case _: return ONE\n",
    "match_at_top": "import sys\nmatch sys.byteorder:\n    case 'little': ORDER = 1\n"
    "    case _: ORDER = 2\ndef fold(x): return ORDER\n",
    "conditional": "import sys\nif sys.version_info > (3, 1):\n    def helper(x): return x + 1\n"
    "else:\n    def helper(x): return x\ndef fold(x): return helper(x)\n",
    "try_import": "try:\n    import no_such_module as fast\nexcept ImportError:\n    fast = None\n"
    "def fold(x): return fast\n",
    "type_checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"
    "    from no_such_module import Node\ndef fold(x: 'Node'): return x\n",
    "for_fills": "TABLE = {}\nfor n in range(3):\n    TABLE[n] = n * n\n"
    "def fold(x): return TABLE[2]\n",
    "with_block": "import contextlib\nwith contextlib.suppress(ValueError):\n    K = 3\n"
    "def fold(x): return K\n",
    "filled_later": "TABLE = []\nTABLE.append(1)\nTABLE += [2]\nTABLE[0] = 5\n"
    "def fold(x): return TABLE\n",
    "alias_filled": "TABLE = []\nSAME = TABLE\nSAME.append(1)\ndef fold(x): return TABLE\n",
    "given_away": "TABLE = []\ndef fill(t): t.append(1)\nfill(TABLE)\ndef fold(x): return TABLE\n",
    "filled_by_assignment": "TABLE = [3, 1]\n_ = TABLE.sort()\ndef fold(x): return TABLE\n",
    "filled_by_function": "TABLE = []\ndef fill():\n    TABLE.append(1)\nfill()\n"
    "def fold(x): return TABLE\n",
    "filled_twice_removed": "TABLE = []\ndef a(): TABLE.append(1)\ndef b(): a()\nX = b()\n"
    "def fold(x): return TABLE\n",
    "registry": "RULES = {}\ndef rule(f):\n    RULES[f.__name__] = f\n    return f\n"
    "@rule\ndef one(x): return 1\n@rule\ndef two(x): return 2\n"
    "def fold(x): return [r(x) for r in RULES.values()]\n",
    "registry_object": "class Rules(list):\n    def add(self, f):\n        self.append(f)\n"
    "        return f\nrules = Rules()\n@rules.add\ndef one(x): return 1\n"
    "def fold(x): return [r(x) for r in rules]\n",
    "single_dispatch": "from functools import singledispatch\n@singledispatch\n"
    "def fold(x): return 'other'\n@fold.register\ndef _(x: int): return 'int'\n",
    "property": "class Fold:\n    @property\n    def x(self): return 1\n    @x.setter\n"
    "    def x(self, v): ...\ndef fold(x): return Fold().x\n",
    "subclasses": "class Rule:\n    def __init_subclass__(cls): SEEN.append(cls.__name__)\n"
    "SEEN = []\nclass One(Rule): ...\nclass Two(One): ...\ndef fold(x): return SEEN\n",
    "subclasses_asked": "class Rule: ...\nclass One(Rule): ...\n"
    "def fold(x): return [c.__name__ for c in Rule.__subclasses__()]\n",
    "function_attribute": "def fold(x): return fold.step\nfold.step = 3\n",
    "deleted": "A = 1\nB = 2\ndel B\ndef fold(x): return 'B' in dir() or A\n",
    "bound_again": "def fold(x): return 1\nfirst = fold\ndef fold(x): return first(x) + 1\n",
    "patch": "import colorsys\nimport json\ncolorsys.ONE_TEST = 7\n"
    "json.PRIVATE = open.__name__\ndef fold(x): return colorsys.ONE_TEST\n",
    "import_of_a_part": "import os.path\ndef fold(x): return os.path.join('a', 'b')\n",
    "import_in_function": "def fold(x):\n    import math as m\n    return m.floor(2.5)\n",
    "docstring": '"""hush-hush"""\nimport math\ndef fold(x):\n    """What."""\n'
    "    # a comment\n    return math.pi, fold.__doc__\n",
    "line_numbers": "import sys\n\n\n\ndef fold(x): return sys._getframe().f_lineno\n",
    "encoding": "# -*- coding: latin-1 -*-\ndef fold(x): return 'plain'\n",
    "async": "import asyncio\nasync def one(): return K\nK = 3\n"
    "def fold(x): return asyncio.run(one())\n",
    "generator": "def one():\n    yield from LIST\nLIST = [1]\ndef fold(x): return list(one())\n",
    "starred": "LIST = [1, 2]\ndef fold(x): return [*LIST, *(a for a in LIST)]\n",
    "seed": "import random\nrandom.seed(3)\ndef fold(x): return random.random()\n",
    "unguarded_script": "def fold(x): return x\ndef main():\n    global API_KEY\n"
    "    API_KEY = 'hush-hush'\nmain()\nrun = main()\n",
}

if sys.version_info >= (3, 12):
    ROWS["type_statement"] = (
        "class Node: ...\ntype Nodes = list[Node]\n"
        "def fold[T](x: T) -> Nodes: return len(Nodes.__value__.__args__)\n"
    )

FILES: dict[str, dict[str, str]] = {
    "from_helper": {
        "job.py": "from helper import a\ndef fold(x): return a(x)\n",
        "helper.py": "K = 2\ndef a(x): return x + K\n" + BESIDE,
    },
    "helper_attribute": {
        "job.py": "import helper as h\ndef fold(x): return h.a(x)\n",
        "helper.py": "K = 2\ndef a(x): return x + K\n" + BESIDE,
    },
    "helper_in_function": {
        "job.py": "def fold(x):\n    from helper import a\n    return a(x)\n",
        "helper.py": "K = 2\ndef a(x): return x + K\n" + BESIDE,
    },
    "helper_of_helper": {
        "job.py": "from helper import a\ndef fold(x): return a(x)\n",
        "helper.py": "from deep import b, c\ndef a(x): return b(x)\ndef other(): return c\n",
        "deep.py": "def b(x): return x + 1\nc = 3\n" + BESIDE,
    },
    "circular": {
        "job.py": "import helper\nK = 1\ndef fold(x): return helper.a(x)\n",
        "helper.py": "def a(x):\n    from job import K\n    return x + K\n" + BESIDE,
    },
    "relative": {
        "job.py": "from pack.sub import a\ndef fold(x): return a(x)\n",
        "pack/__init__.py": "",
        "pack/sub.py": "from .deep import b\nfrom . import other\n"
        "def a(x): return b(x) + other.c(x)\n" + BESIDE,
        "pack/deep.py": "def b(x): return x + 1\n" + BESIDE,
        "pack/other.py": "def c(x): return x + 2\n" + BESIDE,
    },
    "dotted": {
        "job.py": "import pack.sub\ndef fold(x): return pack.sub.a(x)\n",
        "pack/__init__.py": "from pack.deep import b\n",
        "pack/sub.py": "def a(x): return x + 1\n",
        "pack/deep.py": "def b(x): return x + 1\n" + BESIDE,
    },
    "private_neighbour": {
        "job.py": "import helper\nimport private_data\ndef fold(x): return helper.a(x)\n"
        "def data(): return helper.a(private_data.read())\n",
        "helper.py": "def a(x): return x + 1\n",
        "private_data.py": "def read(): return 1\n",
    },
    "patched_neighbour": {
        "job.py": "import helper, settings\nsettings.K = 5\ndef fold(x): return helper.a(x)\n",
        "helper.py": "import settings\ndef a(x): return x + settings.K\n",
        "settings.py": "K = 1\n" + BESIDE,
    },
    "registry_of_a_neighbour": {
        "job.py": "from helper import register, RULES\n@register\ndef one(x): return 1\n"
        "def fold(x): return [r(x) for r in RULES]\n",
        "helper.py": "RULES = []\ndef register(f):\n    RULES.append(f)\n    return f\n" + BESIDE,
    },
    "imported_for_what_it_does": {
        "job.py": "import settings\nimport fills\ndef fold(x): return settings.K\n",
        "fills.py": "import settings\nsettings.K += 1\n",
        "settings.py": "K = 1\n" + BESIDE,
    },
    "try_neighbour": {
        "job.py": "try:\n    from fast import a\nexcept ImportError:\n    from slow import a\n"
        "def fold(x): return a(x)\n",
        "slow.py": "def a(x): return x + 1\n" + BESIDE,
    },
}

WHOLE: dict[str, dict[str, str]] = {
    "star": {
        "job.py": "from helper import *\ndef fold(x): return a(x)\n",
        "helper.py": "def a(x): return x + 1\nwhole = 1\n",
    },
    "star_of_all": {
        "job.py": "from helper import *\ndef fold(x): return _a(x)\n",
        "helper.py": "__all__ = ['_a']\ndef _a(x): return x + 1\nwhole = 1\n",
    },
    "as_a_value": {
        "job.py": "import helper\ndef fold(x): return getattr(helper, 'a')(x)\n",
        "helper.py": "def a(x): return x + 1\nwhole = 1\n",
    },
    "exec": {"job.py": "whole = exec('def fold(x): return x')\n"},
    "eval": {"job.py": "K = 2\nwhole = 1\ndef fold(x): return eval('x + K')\n"},
    "globals": {"job.py": "for n in range(3):\n    globals()[f'k{n}'] = n\nwhole = k2\n"
                "def fold(x): return k2\n"},
    "globals_update": {"job.py": "globals().update(fold=abs, whole=1)\n"},
    "getattr_of_module": {
        "job.py": "from helper import a\ndef fold(x): return a\n",
        "helper.py": "def __getattr__(name): return 3\nwhole = 1\n",
    },
}  # fmt: skip

NUMBERS = count()


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder / "job.py"


def copied(job: Path, to: Path, names: frozenset[str] | None = frozenset(("fold",))) -> Path:
    """Write the copies of a file and its neighbours to another folder."""
    for path, data in slice_files({job: names}).items():
        place = to / path.relative_to(job.parent)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return to / "job.py"


def result(job: Path) -> object:
    return load_file(job, fresh=True).fold(2)


def texts(folder: Path) -> str:
    return "\n".join(path.read_text() for path in folder.rglob("*.py"))


def folders(tmp_path: Path) -> tuple[Path, Path]:
    """Two folders; no other test has ones of these names (modules are known by their path)."""
    number = next(NUMBERS)
    return tmp_path / f"original{number}", tmp_path / f"copy{number}"


def check_same(files: Mapping[str, str], tmp_path: Path) -> Path:
    """Check that copies, and copies of these, do what the files do; return their folder."""
    original, copy = folders(tmp_path)
    job = written(original, files)
    place = copied(job, copy)
    assert repr(result(place)).replace(str(copy), "") == repr(result(job)).replace(
        str(original), ""
    )
    before = {path: path.read_bytes() for path in copy.rglob("*.py")}
    again = copied(place, tmp_path / "again").parent
    assert {path.relative_to(copy): data for path, data in before.items()} == {
        path.relative_to(again): path.read_bytes() for path in again.rglob("*.py")
    }
    return copy


@pytest.mark.parametrize("row", ROWS)
def test_one_file(row: str, tmp_path: Path) -> None:
    text = texts(check_same({"job.py": ROWS[row] + BESIDE}, tmp_path))
    assert "hush" not in text and "/private" not in text
    assert "__main__" not in text


@pytest.mark.parametrize("row", FILES)
def test_neighbours(row: str, tmp_path: Path) -> None:
    files = FILES[row]
    folder = check_same({**files, "job.py": files["job.py"] + BESIDE}, tmp_path)
    text = texts(folder)
    assert "hush" not in text and "/private" not in text
    assert not (folder / "private_data.py").exists() or row != "private_neighbour"


@pytest.mark.parametrize("row", WHOLE)
def test_what_is_not_understood_stays_whole(row: str, tmp_path: Path) -> None:
    assert "whole" in texts(check_same(WHOLE[row], tmp_path))


def test_what_python_cannot_read_stays_whole(tmp_path: Path) -> None:
    job = written(tmp_path, {"job.py": "print 1  # of Python 2\n"})
    assert slice_files({job: frozenset(("fold",))}) == {job: job.read_bytes()}


def test_all_of_a_file_and_what_its_imports_name(tmp_path: Path) -> None:
    files = {"job.py": "from helper import a\nlast = 1\n", "helper.py": "a = 1\n" + BESIDE}
    job = written(tmp_path, files)
    helper = job.with_name("helper.py")
    assert slice_files({job: None}) == {job: job.read_bytes(), helper: b"a = 1\n"}


def test_folders_that_lie_in_each_other_are_not_cut(tmp_path: Path) -> None:
    job = written(tmp_path, {"job.py": "def fold(x): return x\nother = 1\n"})
    inner = written(tmp_path / "inner", {"job.py": "def fold(x): return x\nother = 1\n"})
    wanted = dict.fromkeys((job, inner), frozenset(("fold",)))
    assert slice_files(wanted) == {path: path.read_bytes() for path in wanted}


OPERATORS = """
import torch
from torch.library import Library

@torch.library.custom_op("SPACE::plus", mutates_args=())
def plus(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@plus.register_fake
def _(x):
    return torch.empty_like(x)

LIB = Library("SPACE", "FRAGMENT")
LIB.define("minus(Tensor x) -> Tensor")

@torch.library.impl(LIB, "minus", "CPU")
def minus(x):
    return x - shift()

def shift():
    return 1

@torch.library.custom_op("SPACE_private::plus", mutates_args=())
def private(x: torch.Tensor) -> torch.Tensor:
    return open("/private/place")
"""

USES = """
import torch
IMPORT
aten = torch.ops.aten
def fold(x):
    ones = torch.ones(x)
    return getattr(torch.ops, "SPACE").plus(ones), torch.ops.SPACE.minus(ones)
"""


@pytest.mark.parametrize("is_beside", [False, True])
def test_operators(is_beside: bool, tmp_path: Path) -> None:
    files = {"job.py": OPERATORS + USES.replace("IMPORT", "") + BESIDE}
    if is_beside:
        used_by_the_rest = "import my_ops\ndef rest(): return my_ops.plus, open('/private/rest')\n"
        files = {"job.py": USES.replace("IMPORT", used_by_the_rest), "my_ops.py": OPERATORS}
    folder, copy = folders(tmp_path)
    job = written(
        folder, {name: text.replace("SPACE", f"mine_{is_beside}") for name, text in files.items()}
    )
    place = copied(job, copy)
    assert "/private" not in texts(copy) and "_private::" not in texts(copy)
    for path in copy.glob("*.py"):  # an operator can be registered once in a process
        path.write_text(path.read_text().replace("mine", "copied"))
    assert str(result(job)) == str(result(place))
