"""Tensors without data: what a tensor is (size, stride, dtype, device, storage), and how operators change it."""
