"""Passes from program to program: functionalize, decompose, joint graphs, cleanup. Each owns its rule table."""
