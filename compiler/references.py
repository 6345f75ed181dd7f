"""Load a Python file as a module: the user's own passes, targets and programs.

Neither its folder nor its name gets onto `sys.path`; what an error means is the caller's to say.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def import_file(path: Path, name: str) -> ModuleType:
    """Run a file and return it as the module `name`.

    Args:
        path: An existing file that ends in `.py`.
        name: Name in `sys.modules`, where dataclasses and Dynamo look functions up. It is free
            again if the file raises.

    Raises:
        ImportError: Python knows no loader for such a file.
        BaseException: Whatever the file raises (`SystemExit` included).
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
