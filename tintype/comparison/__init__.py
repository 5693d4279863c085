"""Two programs side by side: where their numbers part (:func:`tintype.compare`), and how their files differ."""
