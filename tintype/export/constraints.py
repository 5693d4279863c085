"""Being written."""
from typing import Any
def check_constraints(environment: Any, sizes: Any, *, complex_as_assertions: bool = False) -> None: ...
def complex_guards(environment: Any, sizes: Any) -> list[Any]: return []
