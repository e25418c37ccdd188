"""Planes: an ordinary model as sums of ternary matrices, so that it runs on ternary kernels without training.

Each matrix becomes W[row][k] ~ sum over p of scale[p][row][k / group] * code[p][row][k], codes -1, 0, 1 (PTQTP, arXiv
2509.16989).  It is stored as one ternary matrix of k * n_plane columns, in which the groups of all planes that belong
to the same columns lie side by side (docs/planes.md).

``planes_file`` fits every group by itself and writes the file.
"""
