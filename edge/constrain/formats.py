"""Formats of strings and numbers in JSON schemas, as regular expressions and bounds that know every rule of theirs.

llguidance has expressions of its own, which take 29 February in every year, a 61st second in every minute, and hosts of
any length.  Sources: RFC 3339 (dates, times, durations), RFC 1123 (hosts), RFC 5321 (e-mail), RFC 4291 (IPv6), RFC 3986
(URIs), RFC 9562 (UUIDs), the OpenAPI format registry (numbers).  A leap second is possible in few minutes only, and the
year 0 is none in most libraries: neither is written.
"""

from __future__ import annotations

from typing import NamedTuple

_YEAR = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
_FOURTH = "(?:0[48]|[2468][048]|[13579][26])"  # 04, 08, ..., 96
_DATE = (
    f"(?:{_YEAR}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    f"|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?:[0-9]{{2}}{_FOURTH}|{_FOURTH}00)-02-29)"
)
_CLOCK = "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = f"{_CLOCK}:[0-5][0-9](?:\\.[0-9]+)?(?:[Zz]|[+-]{_CLOCK})"
_SECONDS, _DAYS = "[0-9]+S", "[0-9]+D"
_MINUTES, _MONTHS = f"[0-9]+M(?:{_SECONDS})?", f"[0-9]+M(?:{_DAYS})?"
_HOURS, _YEARS = f"[0-9]+H(?:{_MINUTES})?", f"[0-9]+Y(?:{_MONTHS})?"
_SPAN = f"T(?:{_HOURS}|{_MINUTES}|{_SECONDS})"
_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
_HOST = f"{_LABEL}(?:\\.{_LABEL})*"
_ATOM = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"
_LOCAL = f"{_ATOM}(?:\\.{_ATOM})*"
_LONG_LABEL = "[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_OCTET = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_IPV4 = f"(?:{_OCTET}\\.){{3}}{_OCTET}"
_HEX = "[0-9A-Fa-f]{1,4}"


def _groups(most: int) -> str:
    return f"(?:{_HEX}(?::{_HEX}){{0,{most - 1}}})?" if most else ""


_IPV6 = f"(?:{_HEX}(?::{_HEX}){{7}}|{'|'.join(f'{_groups(n)}::{_groups(7 - n)}' for n in range(8))})"
_CHAR = "[A-Za-z0-9._~!$&'()*+,;=@:-]|%[0-9A-Fa-f]{2}"  # pchar
_PATH = f"(?:/(?:{_CHAR})*)*"
_AUTHORITY = (
    "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?"
    f"(?:\\[(?:{_IPV6}|v[0-9A-Fa-f]+\\.[A-Za-z0-9._~!$&'()*+,;=:-]+)\\]"
    "|(?:[A-Za-z0-9._~!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*)(?::[0-9]*)?"
)
_URI = (
    f"[A-Za-z][A-Za-z0-9+.-]*:(?://{_AUTHORITY}{_PATH}|/?(?:(?:{_CHAR})+{_PATH})?)"
    f"(?:\\?(?:{_CHAR}|[/?])*)?(?:#(?:{_CHAR}|[/?])*)?"
)


class Format(NamedTuple):
    """``patterns``: all hold; ``most``: characters of the longest text, or None."""

    patterns: tuple[str, ...]
    most: int | None = None


def _whole(pattern: str) -> str:
    return f"^(?:{pattern})$"


#: formats of strings
TEXTS: dict[str, Format] = {
    "date": Format((_whole(_DATE),)),
    "time": Format((_whole(_TIME),)),
    "date-time": Format((_whole(f"{_DATE}[Tt]{_TIME}"),)),
    "duration": Format((_whole(f"P(?:(?:{_YEARS}|{_MONTHS}|{_DAYS})(?:{_SPAN})?|{_SPAN}|[0-9]+W)"),)),
    "email": Format((_whole(f"{_LOCAL}@(?:{_LABEL}\\.)+{_LABEL}"), "^[^@]{1,64}@"), 254),
    "hostname": Format((_whole(_HOST),), 253),
    "ipv4": Format((_whole(_IPV4),)),
    "ipv6": Format((_whole(_IPV6),)),
    "uuid": Format((_whole("[0-9A-Fa-f]{8}-(?:[0-9A-Fa-f]{4}-){3}[0-9A-Fa-f]{12}"),)),
    "uri": Format((_whole(_URI),)),
    "password": Format(()),  # any text, not to be shown
    "binary": Format(()),  # any text; OpenAPI and pydantic say so of bytes
}

#: formats together with a pattern of the user's, if llguidance could not follow both with all lengths of the format
WITH_PATTERN: dict[str, Format] = {"email": Format((_whole(f"{_LOCAL}@(?:{_LONG_LABEL}\\.)+{_LONG_LABEL}"),))}

_LARGEST = (1 << 63) - 1024  # the largest double that is an integer of 64 bits
#: formats of integers: the smallest and the largest
INTEGERS: dict[str, tuple[int, int]] = {
    **{f"int{n}": (-(1 << n - 1), (1 << n - 1) - 1) for n in (8, 16, 32)},
    **{f"uint{n}": (0, (1 << n) - 1) for n in (8, 16, 32)},
    **dict.fromkeys(("int", "int64"), (-_LARGEST, _LARGEST)),
    **dict.fromkeys(("uint", "uint64"), (0, _LARGEST)),
}
#: formats of numbers: within these no number is too large for them; they are written without an exponent
NUMBERS: dict[str, tuple[int, int]] = dict.fromkeys(("float", "double"), (-(10**18), 10**18))
