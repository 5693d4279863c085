"""Python's own control flow on data: ``if``, ``while`` and ``for`` that only a run can decide become operators.

docs/automatic_control_flow.md says what becomes what.
"""
