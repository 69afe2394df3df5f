"""Numbers with a unit in prose: where they stand, what they say, and which units measure the same.

`find` gives each as a `Quantity`. Not looked at: code, formulas, the targets of links, comments. Not a quantity:

- a size (`16×16`, `3 × n`): `×` counts where it says how many times as much;
- whole bytes up to 1024 in words (`16 bytes`, `a 4-byte word`): the size of a type, a load, a sector, a line;
- a power of two in KiB, MiB or GiB (`256 MiB`): a size that somebody chose;
- a prefix spelled out (`10⁹ bytes`, `2²⁰ bytes`, `10¹² operations a second`), and 100 %, the end of a scale;
- the level of an interval (`95 % confidence`), which is chosen and not measured;
- a definition (`1 KiB = 1024 B`), which is computed on the spot: a wrong one is a quantity without a source;
- bits, warps, threads and other things that are counted.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from env.lint.page_rules import CODE, FENCE

_SMALL = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
WORDS = {
    word: value
    for value, words in {
        0.5: ("half a", "half an"),
        1: ("one", "a"),
        **{value: (word,) for value, word in enumerate(_SMALL, 2)},
        15: ("fifteen",),
        **{10 * value: (word,) for value, word in enumerate(("twenty", "thirty", "forty", "fifty", "sixty"), 2)},
        100: ("a hundred", "one hundred", "hundred"),
        1000: ("a thousand", "one thousand", "thousand"),
        1e6: ("a million", "one million"),
    }.items()
    for word in words
}
SCALES = {"thousand": 1e3, "million": 1e6, "billion": 1e9}
DIGITS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")

_PREFIXES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BYTES = {f"{p}B": f for p, f in _PREFIXES.items()} | {f"{p}iB": 1024.0**n for n, p in enumerate("KMGT", 1)}
_FLOPS = {f"{p}FLOP": f for p, f in _PREFIXES.items()}
_OPS = {f"{p}OP": f for p, f in _PREFIXES.items() if p}
# What measures the same, in one unit: name of the unit → (what, factor).
UNITS: dict[str, tuple[str, float]] = {
    **{name: ("bytes", factor) for name, factor in _BYTES.items()},
    **{f"{name}/s": ("bytes/s", factor) for name, factor in _BYTES.items()},
    **{name: ("FLOP", factor) for name, factor in _FLOPS.items()},
    **{f"{name}/s": ("FLOP/s", factor) for name, factor in _FLOPS.items()},
    **{f"{name}/s": ("OP/s", factor) for name, factor in _OPS.items()},
    **{f"{prefix}Hz": ("Hz", factor) for prefix, factor in _PREFIXES.items()},
    **{
        name: ("s", factor)
        for name, factor in {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600}.items()
    },
    "×": ("ratio", 1),
    "times": ("ratio", 1),
    "": ("ratio", 1),
    "ratio": ("ratio", 1),
    "%": ("ratio", 0.01),
    "FLOP/B": ("FLOP/byte", 1),
    "W": ("W", 1),
    "kW": ("W", 1e3),
    "J": ("J", 1),
    "°C": ("°C", 1),
    "cycles": ("cycles", 1),
}
# Other spellings.
ALIASES = {
    "us": "µs", "μs": "µs", "percent": "%", "per cent": "%", "FLOPs": "FLOP", "FLOP/byte": "FLOP/B",
    "nanosecond": "ns", "microsecond": "µs", "millisecond": "ms", "second": "s", "minute": "min", "hour": "h",
    "byte": "B", "kilobyte": "KB", "megabyte": "MB", "gigabyte": "GB", "terabyte": "TB",
    "watt": "W", "clock cycle": "cycles", "cycle": "cycles",
}  # fmt: skip

_PLAIN = r"\d+(?:,\d{3})*(?:\.\d+)?"
NUMBER = rf"{_PLAIN}(?:\s?[·×]\s?10[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+|[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)?(?:\s(?:thousand|million|billion))?"
_IN_WORDS = "|".join(sorted(WORDS.keys() - {"a"}, key=len, reverse=True))
_SYMBOL = (
    r"(?:[kKMGT]i?B(?:/s)?|[kMGTP]?FLOPs?(?:/(?:s|byte|B))?|[MGTP]OPs?(?:/s)?|ns|[µμu]s|ms|min|[kMG]?Hz|kW|°C"
    r"|percent|per\ cent)\b"
)
# These alone are too short to stand without a space: 7B is a model, 3s a plural.
_SHORT = r"(?:s|h|B|W|J)(?![\w'’/-])"
_SPELLED = (
    r"(?:(?:nano|micro|milli)?seconds?|minutes?|hours?|(?:kilo|mega|giga|tera)?bytes?|(?:clock\ )?cycles?|watts?)\b"
)
_RATE = r"[A-Za-z][A-Za-z-]*/s\b"
_RATE_SPELLED = r"[a-z][a-z-]*\ (?:a|per)\ second\b"
_COMPARED = (
    r"(?:as|the|more|less|faster|slower|cheaper|dearer|longer|shorter|larger|smaller|higher|lower|bigger|fewer|what|that"
    r"|its|quicker|better|worse|those)\b"
)
# In words a factor counts where it compares times or sizes; `four times as many sectors` is what the sentence derives.
_FASTER = (
    r"(?:as\ (?:fast|slow|long|high|quick|cheap|dear|good)|the|faster|slower|longer|shorter|cheaper|better|worse)\b"
)
# `4× as fast`, `11×`; `4 × n` and `16×16` are sizes.
_FACTOR = rf"(?<=\d)×(?!\w|\s?[\d*$(√\\])|(?<=\s)×(?=\s+{_COMPARED}|\s*(?:[.,;:!?)|\n]|$))|times(?=\s+{_COMPARED})"
_GAP = r"[ \u00a0\u202f\n]"
_UNIT = (
    rf"{_GAP}?(?P<percent>%)|{_GAP}?(?P<symbol>{_SYMBOL.replace(chr(92) + ' ', _GAP)})|{_GAP}(?P<short>{_SHORT})"
    rf"|[ \u00a0\n-](?P<spelled>{_SPELLED.replace(chr(92) + ' ', _GAP)})|{_GAP}(?P<rate>{_RATE})"
    rf"|{_GAP}(?P<rate_spelled>{_RATE_SPELLED.replace(chr(92) + ' ', _GAP)})|{_GAP}?(?P<factor>{_FACTOR})"
)
# `21, 145 and 335 ns`, `8–15 GB/s`, `38/49 ms`, `2 to 3 times the …`: one quantity with several numbers.
# `it would take a second`, not `it takes a second launch`.
_ONE = r"(?:(?<=take )|(?<=takes )|(?<=took ))a(?= (?:(?:milli|micro)?second|minute|hour)(?:[.,;:!?)]|$| (?:and|or)\b))"
_JOIN = rf"(?:(?:(?:,{_GAP}{NUMBER})+,?)?{_GAP}(?:and|or|to|against){_GAP}|{_GAP}?[–—]{_GAP}?|-|/){NUMBER}"
QUANTITY = re.compile(
    rf"(?<![\w.,/^_{{⁻-])(?P<numbers>{NUMBER}(?:{_JOIN})?)(?:{_UNIT})"
    rf"|(?<![\w-])(?<!hundred )(?<!few )(?<!several )(?<!some )(?P<words>{_IN_WORDS}|{_ONE})"
    rf"(?:{_GAP}(?P<in_words>{_SPELLED.replace(chr(92) + ' ', _GAP)}|times(?=\s+{_FASTER})|percent\b))",
    re.IGNORECASE,
)
_RULE = re.compile(r"^\|[\s:|-]*---[\s:|-]*$")
_HEAD = re.compile(
    r"(?<![\w/])(?:[kKMGT]i?B(?:/s)?|[kMGTP]?FLOP(?:/s|/B|/byte)?|[MGT]OP/s|ns|[µu]s|ms|s|W|%|[a-z]+/s)(?![\w/])"
)
# A name with a number before it: `lesson 10 and 4 ms` are not two times.
_NAMES = re.compile(r"(?:lessons?|rungs?|cells?|sections?|steps?|batch(?:es)?|version|CUDA|lesson's)\s$", re.IGNORECASE)
_FORMULA = re.compile(r"\$\$.*?\$\$|(?<![\\$])\$(?!\s)(?:[^$\n]|\n(?!\n))+?(?<!\s)\$", re.DOTALL)
_TARGET = re.compile(r"(?<=\])\(\s*<?[^)\s>]+>?(?:\s+\"[^\"]*\")?\s*\)")
_HTML = re.compile(r"<!--.*?-->|<[^<>\n]+>|https?://[^\s)>\]]+", re.DOTALL)
_CHOSEN = re.compile(r"^[\s-]*(?:confidence|percentile|quantile)")
_PREFIX = re.compile(r"10[³⁶⁹]|10¹[²⁵]|2[¹²³⁴]⁰")
_EQUAL = re.compile(r"^\s*(?:=|is|are)\s*$")


@dataclass(frozen=True)
class Quantity:
    """A number with its unit: the text as it stands (with single spaces), the numbers' own texts, and the unit."""

    text: str
    numbers: tuple[str, ...]
    unit: str
    start: int

    @property
    def values(self) -> list[float]:
        """What the numbers say, in the unit."""
        return [value(number) for number in self.numbers]


def value(number: str) -> float:
    """What a number says: `4.8`, `400,000`, `2²⁸`, `3 · 10⁹`, `1.5 million`, `ten`."""
    if number.lower() in WORDS:
        return WORDS[number.lower()]
    number, _, scale = number.partition(" ")
    if scale and scale[0] in "·×":
        number, scale = f"{number} {scale}", ""
    factor = SCALES.get(scale.lower(), 1.0)
    if power := re.fullmatch(rf"({_PLAIN})\s?[·×]\s?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", number):
        return float(power[1].replace(",", "")) * 10.0 ** int(power[2].translate(DIGITS)) * factor
    if power := re.fullmatch(rf"({_PLAIN})([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)", number):
        return float(power[1].replace(",", "")) ** int(power[2].translate(DIGITS)) * factor
    return float(number.replace(",", "")) * factor


def tolerance(number: str) -> float:
    """By how much a value may differ from the digits shown: half of the last digit's place.

    Zeros at the end of a whole number may stand for digits that were left out (`4200` for 4214), within 5 %.
    """
    shown = value(number)
    plain = re.match(_PLAIN, number)
    if not plain or not re.fullmatch(rf"{_PLAIN}(?: (?:thousand|million|billion))?", number):
        return abs(shown) * 0.05
    digits = plain[0].replace(",", "")
    scale = shown / float(digits) if float(digits) else 1.0
    _, point, behind = digits.partition(".")
    if point:
        return 0.5 * 10.0 ** -len(behind) * scale
    place = 10.0 ** (len(digits) - len(digits.rstrip("0")))
    return max(0.5, min(0.5 * place, 0.05 * abs(float(digits)))) * scale


def unit_of(name: str) -> str:
    """One name for each unit."""
    name = " ".join(name.split())
    if name in UNITS:
        return name
    for spelled in (name, name.lower(), name.lower().removesuffix("s"), name.removesuffix("s")):
        if spelled in ALIASES:
            return ALIASES[spelled]
        if spelled in UNITS:
            return spelled
    return re.sub(r" (?:a|per) second$", "/s", name)


def prose(text: str) -> str:
    """The text with all that is no prose blanked out, each character in its place."""
    lines, fenced = [], False
    for line in text.split("\n"):
        fence = bool(FENCE.match(line))
        fenced ^= fence
        lines.append(" " * len(line) if fenced or fence else line)
    text = "\n".join(lines)
    for pattern in (CODE, _FORMULA, _TARGET, _HTML):
        text = pattern.sub(lambda match: re.sub(r"[^\n]", "\x00", match[0]), text)
    # Signs of Markdown between a number and its unit: **335** ns.
    return re.sub(r"(?<=\d)\*\*(?=\s)|\*\*(?=\d)", lambda match: "\x01" * len(match[0]), text)


def find(text: str) -> list[Quantity]:
    """All quantities of a Markdown text: those of its sentences in order, then those of columns whose head has the unit."""
    plain = prose(text)
    columns = list(_columns(plain))
    # The signs are dropped, and each character keeps its place in the text.
    places = [at for at, sign in enumerate(plain) if sign != "\x01"]
    plain = plain.replace("\x01", "")
    found = [one for match in QUANTITY.finditer(plain) for one in _read(plain, match)]
    defined = {id(one) for one in _defined(plain, found)}
    return [
        Quantity(one.text, one.numbers, one.unit, places[one.start])
        for one in found
        if id(one) not in defined and not _exempt(one, plain)
    ] + columns


def named(text: str, key: str) -> Quantity | None:
    """What a text says where it holds this key, a number and what it counts: sizes, bits and warps may have sources, too."""
    number = re.match(NUMBER, key)
    if number is None or _spaced(key) not in _spaced(prose(text).replace("\x01", "")):
        return None
    return Quantity(key, (_spaced(number[0]),), unit_of(key[number.end() :].strip(" -")), -1)


def _columns(plain: str) -> Iterator[Quantity]:
    """Bare numbers in a table's column, with the unit that the column's head names; the text is `NUMBER UNIT`."""
    head: list[str] = []
    lines, at = plain.split("\n"), 0
    for number, line in enumerate(lines):
        row = line.strip()
        if not row.startswith("|"):
            head = []
        elif number + 1 < len(lines) and _RULE.match(lines[number + 1].strip()):
            head = row.strip("|").split("|")
        elif head and not _RULE.match(row):
            for name, cell in zip(head, row.strip("|").split("|"), strict=False):
                bare, unit = cell.replace("\x01", "").strip(" *"), _HEAD.search(name.replace("\x00", ""))
                if unit and _known(unit[0]) and (parts := re.fullmatch(rf"({NUMBER})(?:(?:–| to ){NUMBER})?", bare)):
                    text = f"{parts[0]} {unit[0]}"
                    one = Quantity(text, tuple(found[0] for found in re.finditer(NUMBER, bare)), unit_of(unit[0]), at)
                    if not _exempt(one, ""):
                        yield one
        at += len(line) + 1


def _read(plain: str, match: re.Match[str]) -> Iterator[Quantity]:
    """The quantity of a match."""
    groups = match.groupdict()
    if groups["words"]:
        yield Quantity(_spaced(match[0]), (groups["words"],), unit_of(groups["in_words"]), match.start())
        return
    name = next(groups[key] for key in _UNIT_GROUPS if groups[key])
    symbol = groups["symbol"] or groups["short"]
    # Case tells a unit from a word or a variable: `5 MS`, `3 S`.
    if symbol and not _known(symbol):
        return
    numbers, start = groups["numbers"], match.start()
    parts = [one[0] for one in re.finditer(NUMBER, numbers)]
    if len(parts) > 1 and _NAMES.search(plain[:start]):
        start, parts = match.start() + numbers.rindex(parts[-1]), parts[-1:]
    yield Quantity(_spaced(plain[start : match.end()]), tuple(map(_spaced, parts)), unit_of(name), start)


_UNIT_GROUPS = ("percent", "symbol", "short", "spelled", "rate", "rate_spelled", "factor")


def _known(symbol: str) -> bool:
    symbol = _spaced(symbol)
    return symbol in UNITS or symbol in ALIASES or symbol.removesuffix("s") in UNITS or symbol.lower() in ALIASES


def _spaced(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").replace("\u202f", " ").split())


def _exempt(one: Quantity, plain: str) -> bool:
    """Sizes of types and loads, sizes that were chosen, prefixes, and levels of intervals."""
    whole = all(re.fullmatch(r"\d+", number) or number.lower() in WORDS for number in one.numbers)
    if one.unit == "%":
        behind = plain[one.start + len(one.text) :]
        return one.numbers == ("100",) or _CHOSEN.match(behind) is not None
    if one.unit == "B" and whole and max(one.values) <= 1024:
        return re.search(r"\bbytes?$", one.text, re.IGNORECASE) is not None
    if one.unit in {"KiB", "MiB", "GiB"} and whole:
        return all(int(size) & int(size) - 1 == 0 for size in one.values)
    return all(_PREFIX.fullmatch(number) for number in one.numbers)


def _defined(plain: str, found: list[Quantity]) -> Iterator[Quantity]:
    """Both sides of each definition that holds: `1 KiB = 1024 B`."""
    for left, right in itertools.pairwise(found):
        between = plain[left.start : right.start].removeprefix(plain[left.start : left.start + len(left.text)])
        if not _EQUAL.match(between) or len(left.numbers) + len(right.numbers) != 2:
            continue
        (what, factor), (other, by) = UNITS.get(left.unit, (left.unit, 1)), UNITS.get(right.unit, (right.unit, 1))
        if what == other and abs(left.values[0] * factor - right.values[0] * by) <= 1e-9 * abs(left.values[0] * factor):
            yield left
            yield right
