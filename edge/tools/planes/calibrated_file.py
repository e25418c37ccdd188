"""A new file with calibrated planes: between :mod:`edge.tools.convert` and :mod:`edge.tools.planes.calibrated`."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge.errors import UsageError
from edge.files import read_text
from edge.formats.checkpoint import Checkpoint, Tensor
from edge.registry.encodings import MOST_PLANES
from edge.tools.planes.planes_file import Planes, PlanesFile, bits

if TYPE_CHECKING:
    from edge.tools.planes.calibrated import DenseModel

#: what is read if no text is named
TEXT = Path(__file__).resolve().parents[2] / "bundled" / "calibration.txt"
#: tokens of a piece of the text, pieces for calibration, and the number of pieces of which one is held out
PIECE, PIECES, EVERY = 512, 16, 5
#: tokens on which each matrix is measured alone
PROBE = 64
#: bits per weight where neither bits nor a divergence are asked for
USUAL_BITS = 6.75
#: rows of a matrix of which the error with each number of planes is estimated
SAMPLE = 64


class CalibratedFile(PlanesFile):
    """Writes what :class:`edge.tools.planes.calibrated.Calibration` makes.

    ``progress(done, total)`` is called while the number of planes is measured.  Raises UsageError where NumPy, a
    tokenizer or enough text is missing.
    """

    def __init__(
        self, checkpoint: Checkpoint, planes: Planes, embedding: str, progress: Callable[[float, float], None]
    ) -> None:
        super().__init__(checkpoint, planes, embedding)
        try:
            import numpy  # noqa: F401
        except ImportError:
            raise UsageError("calibration needs NumPy, which this program does not contain; convert with bitnet-edge "
                             "installed by pip, on any machine, or without --calibrate") from None
        from edge.tools.planes import calibrated

        self.texts, self.held = self._read()
        self.source_of_numbers = self._source()
        self.counts: dict[str, int] | None = None
        if planes.count is None:
            found = calibrated.sensitivities(
                self.source_of_numbers, self.texts[0][:PROBE], self._rough, lambda share: progress(share, 1.0))
            most = planes.bits or (math.inf if planes.nats else USUAL_BITS)
            self.counts = calibrated.shared_out(found, most / bits(1, planes.group), planes.nats or 0.0)
        run = calibrated.Calibration(
            self.source_of_numbers, self.texts, self.held, lambda name: self.n_plane(checkpoint.tensors[name]),
            planes.group, planes.n_threads, self._kept)
        self.calibration, self.rest = run, run.run()

    def n_plane(self, tensor: Tensor) -> int:
        """Planes of a matrix."""
        return super().n_plane(tensor) if self.counts is None else self.counts[tensor.name]

    def about(self) -> dict[str, Any]:
        """Where the planes come from and what they lose, by key; before all is written NaN."""
        name = os.path.basename(self.planes.text or TEXT)
        texts = len(self.texts) - self.held
        measured = {"kl": math.nan, "same_choice": math.nan, "perplexity": math.nan, "perplexity_ratio": math.nan}
        if self.done():
            for _ in self.rest:  # what was there already
                pass
            loss = self.calibration.loss()
            measured = {"kl": loss.kl, "same_choice": loss.same, "perplexity": loss.perplexity,
                        "perplexity_ratio": loss.ratio}
        return {**super().about(), "method": f"error feedback, {texts * PIECE} tokens of {name}", **measured,
                "measured": f"{self.held * PIECE} tokens of {name}, held out; NumPy"}

    def made(self, tensor: Tensor) -> tuple[Any, Any, float, float]:
        """The planes of a matrix; all those before it in the file are made first."""
        made = next(each for each in self.rest if each.name == tensor.name)
        assert made.codes is not None and made.scales is not None
        return made.codes, made.scales, made.error, made.whole

    def _kept(self, name: str) -> Any:
        """The weights of a matrix that is written already, as float32 [n_row][k]; None if it is not."""
        import numpy as np

        from pyx.weights.ternary import TernaryMatrix

        if self.part is None or name not in self.part.finished or not self.written[name].squares:
            return None
        rows, k = self.checkpoint.tensors[name].shape
        n_plane = self.n_plane(self.checkpoint.tensors[name])
        matrix = TernaryMatrix.pack(self.type, self.part.stored(name), rows, k, planes=n_plane)
        return np.array(matrix.sum_planes(), np.float32).reshape(rows, k)

    def _rough(self, name: str) -> tuple[Any, tuple[float, ...]]:
        """A matrix of two planes, and the relative squared errors with each number of planes, from some of its rows."""
        import numpy as np

        from edge.tools.planes.feedback import restored
        from pyx.weights.planes import fit

        tensor = self.checkpoint.tensors[name]
        rows, k = tensor.shape
        group, n_threads = self.planes.group, self.planes.n_threads
        weights = self.floats(tensor)
        some = np.array(weights, np.float32).reshape(rows, k)[:: max(1, rows // SAMPLE)]
        errors = [fit(some.ravel(), len(some), k, group, count, n_threads)[2:] for count in range(1, MOST_PLANES + 1)]
        codes, scales, _, _ = fit(weights, rows, k, group, 2, n_threads)
        changed = restored(np.array(codes).reshape(2, rows, k), np.array(scales).reshape(2, rows, k // group))
        return changed, tuple(error / max(whole, 1e-30) for error, whole in errors)

    def _read(self) -> tuple[Any, int]:
        """Tokens [text][PIECE], and how many of the texts, the last ones, are held out."""
        import numpy as np

        from edge.prompt.tokenizer import Tokenizer

        path = self.planes.text or TEXT
        text = read_text(str(path))
        if self.checkpoint.tokenizer.kind == "none":
            raise UsageError(f"{self.checkpoint.path}: has no tokenizer, and calibration reads a text; leave out "
                             "--calibrate")
        tokenizer = Tokenizer.of(self.checkpoint)
        first = [tokenizer.bos_id] if tokenizer.add_bos and tokenizer.bos_id is not None else []
        ids, room = tokenizer.encode(text), PIECE - len(first)
        pieces = np.array([[*first, *ids[at : at + room]] for at in range(0, len(ids) - room + 1, room)], np.int64)
        out = np.arange(len(pieces)) % EVERY == EVERY - 1
        if len(pieces) < EVERY:
            raise UsageError(f"{path}: has {len(ids)} tokens, and calibration needs {EVERY * room} or more")
        kept, held = pieces[~out][:PIECES], pieces[out][: max(1, PIECES // (EVERY - 1))]
        return np.concatenate([kept, held]), len(held)

    def _source(self) -> DenseModel:
        """The model as NumPy reads it, in the order of rows that is written."""
        import dataclasses

        import numpy as np

        from edge.registry.families import FAMILIES
        from edge.tools.planes.calibrated import DenseModel
        from pyx.weights.planes import floats
        from pyx.weights.stored_rows import StoredRows

        tensors = self.checkpoint.tensors
        vectors: dict[str, Any] = {}

        def matrix(name: str) -> Any:
            return np.frombuffer(self.floats(tensors[name]), np.float32).reshape(tensors[name].shape)

        def vector(name: str) -> Any:
            if name not in vectors:
                tensor = tensors[name]
                vectors[name] = np.array(StoredRows(tensor.type, tensor.data, 1, tensor.shape[0]).row(0), np.float32)
            return vectors[name]

        def table(name: str) -> StoredRows:
            return StoredRows(tensors[name].type, tensors[name].data, *tensors[name].shape)

        def rows(name: str, first: int, stop: int) -> Any:
            tensor = tensors[name]
            size = len(tensor.data) // tensor.shape[0]
            part = StoredRows(tensor.type, tensor.data[first * size : stop * size], stop - first, tensor.shape[1])
            return np.frombuffer(floats(part), np.float32).reshape(stop - first, tensor.shape[1])

        embedding, head = table("token_embd.weight"), self.checkpoint.head
        style = FAMILIES[self.arch].rope_style
        layers = tuple(layer.styled(style) for layer in self.config.layers)
        return DenseModel(
            dataclasses.replace(self.config, layers=layers), matrix, vector,
            lambda ids: np.array([embedding.row(int(each)) for each in ids], np.float32),
            lambda first, stop: rows(head, first, stop),
            vector("rope_freqs.weight") if "rope_freqs.weight" in tensors else None,
        )
