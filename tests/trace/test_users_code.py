"""What is found in the code of a program's functions before a capture."""

import types

from tintype.trace import users_code
from tintype.trace.users_code import found_once, names_in


def test_what_is_found_in_code_is_found_once(monkeypatch):
    monkeypatch.setattr(users_code, "_MOST_CODE", 3)
    looked_at = []
    find = found_once(lambda code: looked_at.append(code) or code.co_names)
    source = "lambda x: x.{}.cos()"
    codes = [eval(source.format(name)).__code__ for name in ("a", "b", "a", "c", "d")]
    for code in (*codes, *codes[-2:]):
        assert find(code) == code.co_names
    # code that is equal is other code; and no more is remembered than so much
    assert [id(code) for code in looked_at] == [id(code) for code in codes]


def test_code_that_is_gone_is_not_taken_for_other_code_at_its_address():
    for number in range(200):
        function = eval(f"lambda x: x.name_{number}()")
        assert names_in(function.__code__) == (f"name_{number}",)
        changed = function.__code__.replace(co_names=("other",))
        assert names_in(types.FunctionType(changed, {}).__code__) == ("other",)
