"""Other people's tools on the programs that ``tintype.interop.to_torch`` gives, beside those of torch.export."""
