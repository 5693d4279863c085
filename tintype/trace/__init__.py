"""Runs a callable on fakes and records what it does as an fx graph."""
