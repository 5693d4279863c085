"""How far a program is from what the user wrote."""

from __future__ import annotations

import enum


class Stage(enum.Enum):
    """How far a program has come; each stage has its own rules (see :mod:`tintype.ir.verifier`).

    >>> import torch, tintype
    >>> ep = tintype.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    >>> ep.stage.name, ep.run_decompositions().stage.name
    ('FUNCTIONAL', 'CORE')
    """

    TRAINING = "training"
    FUNCTIONAL = "functional"
    CORE = "core"
