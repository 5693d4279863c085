"""Lowerings of ours, one file for each family of operators."""
