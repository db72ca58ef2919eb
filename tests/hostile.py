"""Texts and queries as nobody would write them, and as everybody does: for the tests of search."""

# ruff: noqa: RUF001  # look-alikes are what these texts are made of

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random

_PIECES = """
src/main.py foo_bar fooBar FooBarBaz HTTPServer2 x86_64 -5 +3.14 1e5 1.2.3 0xDEADBEEF user@example.com it's don't C++ c#
http://example.com/a/b?x=1&y=%20z#frag C:\\Users\\dir naïve café CAFÉ cafe\u0301 e\u0301e\u0301 Straße STRASSE ﬁle ½ ² x² Ⅳ
İstanbul ıi Ωmega ΩΜΈΓΑ Привет мир שלום مرحبا ١٢٣ हिन्दी भाषा ภาษาไทย ที่นี่ 数据库 数据库连接池 データベース接続 カタカナ
ひらがな 한국어 조선말 ພາສາລາວ ភាសាខ្មែរ မြန်မာ བོད་ཡིག 🙂 🤖 👩\u200d💻 a🤖b 𠜎𠜱 ﷺ 𝔘nicode \U000304a5 \u3099か 々〆〇ー・
\u200b zero\u200bwidth soft\u00adhyphen nul\x00byte \x00 \ufeffbom a\u0301\u0302\u0303 ễ Ễ \u0301start \ue000 \ue000sx
half\ud83dhalf \udc81 select'-- 'quoted' "dq" back\\slash 'it''s' :* <-> & | ! ( ) NOT AND OR NEAR ^ colon:x a:b * -foo {
--flag -f --long-flag=value 2024-01-02T03:04:05Z 192.168.0.1 ::1 #42 $VAR ${x} @dec λx.x a.b.c a->b a::b <tag> &amp; %s
"""
PIECES = _PIECES.split()
_COMMON = "running runs sessions indexed organization the error session memory table index commit a b c main py src"
COMMON = _COMMON.split()
_RANGES = ((1, 0x250), (0x250, 0x3000), (0x3000, 0xA000), (0xA000, 0x11000), (0x10000, 0x30000), (0x30000, 0x110000))
_TWO_HALVES = re.compile("[\ud800-\udbff](?=[\udc00-\udfff])")  # side by side they are refused
_GLUE = (" ", " ", " ", "\n", "\t", "", "-", "/", ".", "，")


def piece(rng: random.Random) -> str:
    """A word, or what stands for one."""
    kind = rng.random()
    if kind < 0.45:
        return rng.choice(COMMON)
    if kind < 0.85:
        return rng.choice(PIECES)
    if kind < 0.93:
        return "".join(chr(rng.randrange(*rng.choice(_RANGES))) for _ in range(rng.randint(1, 4)))
    return "".join(rng.choice("abcXYZ_09éß数") for _ in range(rng.randint(1, 6)))


def text(rng: random.Random) -> str:
    """A text of no words to thousands."""
    count = rng.choice((0, 1, 3, 8, 20, 60)) if rng.random() < 0.97 else rng.randint(300, 3000)
    return _TWO_HALVES.sub(" ", "".join(piece(rng) + rng.choice(_GLUE) for _ in range(count)))


def giants() -> list[str]:
    """Texts at the limits of tokens, index rows and messages."""
    return [
        "x" * 5000 + " after",
        "é" * 3000 + " after",
        "数" * 3000 + " after",
        "a" * 127 + "é tail",
        "a" * 40_000 + " tail40000",
        " ".join(f"w{number}" for number in range(40_000)) + " needleatend",
        "the error " * 5000 + " needle after repeats",
        "0 " * 100_000 + " never indexed",
        " ".join(f"{number:060d}" for number in range(30_000)) + " bigend",
        "the " * 300 + "quick fox",
        ("the " * 255 + "quick fox ") * 4,
        " ".join(f"{number % 32:03d}" + "x" * 125 for number in range(32 * 256)),  # a tsvector's 1 MB counts repeats
    ]


def query(rng: random.Random, texts: list[str]) -> dict[str, Any]:
    """The arguments of a search: words, quotations, prefixes, exclusions, of made-up words and of pieces of real texts."""
    words = []
    for _ in range(rng.choice((1, 1, 2, 2, 3, 5))):
        if rng.random() < 0.5:
            word = piece(rng)
        else:
            source = rng.choice(texts)[:4000]
            start = rng.randrange(len(source)) if source else 0
            word = source[start : start + rng.randint(1, 24)]
        kind = rng.random()
        if kind < 0.2:
            word = f'"{word}"'
        elif kind < 0.4:
            word = word[: rng.randint(1, len(word))] + "*" if word else "*"
        words.append(word)
    return {
        "query": " ".join(words),
        "match": rng.choice(("all", "any")),
        "exclude": piece(rng) if rng.random() < 0.25 else None,
    }
