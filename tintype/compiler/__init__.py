"""``tintype.compile``: functions as the user wrote them, captured while they run, with guards."""
