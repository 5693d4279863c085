"""Programs in files: a documented format (docs/format.md) without code, safe to load from anybody."""
