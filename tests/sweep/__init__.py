"""torch's operator database, exported operator by operator and compared with eager mode."""
