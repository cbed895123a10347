"""The command: `python -m seejax.errors < traceback.txt` names the error of a traceback."""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path

from seejax import errors
from seejax.commands import language

WORDS = {
    "zh": {
        "cause": "原因：{}",
        "cure": "办法：{}",
        "unknown": "错误词典里没有这个错误。",
        "nothing": "没有输入。用法：python -m seejax.errors < traceback.txt",
        "binary": "输入不是文本。",
        "unread": "读不了 {}：{}",
    },
    "en": {
        "cause": "Cause: {}",
        "cure": "Cure: {}",
        "unknown": "The dictionary has no such error.",
        "nothing": "Nothing to read. Usage: python -m seejax.errors < traceback.txt",
        "binary": "This is not text.",
        "unread": "Cannot read {}: {}",
    },
}


def text_of(raw: bytes) -> str:
    """What a terminal, an editor or PowerShell wrote: UTF-8, UTF-16 with its mark, or GB 18030.

    Of another coding, or cut in the middle of a character, what is ASCII can still be read.

    Raises:
      ValueError: it is no text.

    >>> text_of("错误".encode("gbk")) == text_of("错误".encode("utf16")) == "错误"
    True
    """
    for coding in ("utf-8-sig", "gb18030"):
        with contextlib.suppress(UnicodeDecodeError):
            if "\0" not in (text := raw.decode(coding)):
                return text
    marked = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = raw.decode("utf-16" if marked else "utf-8", "replace")
    if "\0" in text or text.count("\ufffd") * 4 > len(text):
        raise ValueError("no text")
    return text


def main() -> int:
    about = (errors.__doc__ or "").partition("\n")[0]
    parser = argparse.ArgumentParser("python -m seejax.errors", description=about)
    parser.add_argument("file", nargs="?", help="a traceback; without it, standard input")
    parser.add_argument("--lang", choices=WORDS, default=language())
    parser.add_argument("--json", action="store_true", help="one document, for a program to read")
    args = parser.parse_args()
    said = WORDS[args.lang]
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack what a text needs
        stream.reconfigure(errors="replace")  # pyrefly: ignore
    try:
        raw = Path(args.file).read_bytes() if args.file else sys.stdin.buffer.read()
        text = text_of(raw)
    except OSError as error:
        return fail(said["unread"].format(args.file, error.strerror))
    except ValueError:
        return fail(said["binary"])
    if not text.strip():
        return fail(said["nothing"])
    found = errors.name(text)
    if args.json:
        print(document(found, args.lang))
        return 0 if found else 1
    if not found:
        print(said["unknown"])
        return 1
    entry = errors.entries()[found]
    print(found)
    print(said["cause"].format(entry.cause[args.lang]))
    print(said["cure"].format(entry.cure[args.lang]))
    print(errors.address(found, args.lang))
    return 0


def document(found: str | None, lang: str) -> str:
    """What is known of an error as JSON, in ASCII, which every terminal and pipe can carry.

    >>> document(None, "en")
    '{"language": "en", "entries": []}'
    """
    matched = []
    if found:
        entry = errors.entries()[found]
        matched.append(
            {
                "name": found,
                "title": errors.headword(entry),
                "cause": entry.cause[lang],
                "cure": entry.cure[lang],
                "code": entry.code,
                "cured": entry.cured,
                "address": errors.address(found, lang),
            }
        )
    return json.dumps({"language": lang, "entries": matched})


def fail(why: str) -> int:
    print(why, file=sys.stderr)
    return 2


if __name__ == "__main__":
    code = 0
    try:
        code = main()
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as `head -1`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
