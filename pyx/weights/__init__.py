"""Matrices and vectors of a model: packed ternary ones, stored rows, sums of planes."""
