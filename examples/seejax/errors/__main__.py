"""The command: `python -m seejax.errors < traceback.txt` names the error of a traceback."""

import argparse
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import Any

from seejax import errors
from seejax.commands import language
from seejax.errors import gone

WORDS = {
    "zh": {
        "line": "你的代码：{file} 第 {line} 行",
        "source": "    {source}",
        "today": "今天的写法：{}",
        "package": "这一行在 {} 里，不在你的代码里：升级它，例如 pip install -U {}",
        "cause": "原因：{}",
        "cure": "办法：{}",
        "before": "会报错的程序：",
        "prints": "会打印它的程序：",
        "after": "改好以后：",
        "place": "位置：{}",
        "book": "《See JAX》“查一个错误”一页，{}",
        "more": "加上 --example，就显示改之前和改之后的程序。",
        "unknown": "错误词典里没有这个错误。",
        "beside": "不过在它之前还打印了：",
        "nothing": "没有输入。用法：python -m seejax.errors < traceback.txt",
        "binary": "输入不是文本。",
        "unread": "读不了 {}：{}；也没有叫这个名字的条目，--list 列出全部。",
        "errors": "错误",
        "notices": "不报错，但会打印",
    },
    "en": {
        "line": "Your line: {file}, line {line}",
        "source": "    {source}",
        "today": "Today: {}",
        "package": "The line stands in {}, not in your code: update it, pip install -U {}",
        "cause": "Cause: {}",
        "cure": "Cure: {}",
        "before": "A program that raises it:",
        "prints": "A program that has it printed:",
        "after": "The same as it should be:",
        "place": "More: {}",
        "book": "See JAX, on the page “Look an error up”: {}",
        "more": "With --example it shows the program before and after.",
        "unknown": "The dictionary has no such error.",
        "beside": "But before it, this was printed:",
        "nothing": "Nothing to read. Usage: python -m seejax.errors < traceback.txt",
        "binary": "This is not text.",
        "unread": "Cannot read {}: {}. Nor is there an entry of that name: see --list.",
        "errors": "Errors",
        "notices": "What is printed though the program goes on",
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
    parser.add_argument(
        "file",
        nargs="?",
        help="a traceback, or an entry (tracer-bool), or the class of an error; "
        "without it, standard input",
    )
    parser.add_argument("--lang", choices=WORDS, default=language())
    parser.add_argument("--example", action="store_true", help="the programs, before and after")
    parser.add_argument("--list", action="store_true", help="every entry, in one line each")
    parser.add_argument("--json", action="store_true", help="one document, for a program to read")
    args = parser.parse_args()
    said = WORDS[args.lang]
    for stream in (sys.stdout, sys.stderr):  # a terminal may lack what a text needs
        stream.reconfigure(errors="replace")  # pyrefly: ignore
    if args.list:
        names = [*errors.entries(), *errors.notices()]
        print(document(names, args.lang) if args.json else listed(said))
        return 0
    if args.file and not Path(args.file).exists() and (names := errors.look_up(args.file)):
        return answer(names, "", args)
    try:
        raw = Path(args.file).read_bytes() if args.file else sys.stdin.buffer.read()
        text = text_of(raw)
    except OSError as error:
        return fail(said["unread"].format(args.file, error.strerror))
    except ValueError:
        return fail(said["binary"])
    if not text.strip():
        return fail(said["nothing"])
    if found := errors.find(text):
        return answer([found.name], text, args)
    if names := errors.look_up(text):  # the class of an exception alone
        return answer(names, "", args)
    return answer(errors.noticed(text), text, args)


def answer(names: list[str], text: str, args: argparse.Namespace) -> int:
    """Print what is known; the exit status is 1 where what ended the program is not."""
    found = errors.find(text) if text else None
    known = bool(names) and (bool(found) or not (text and errors.raises(text)))
    if args.json:
        print(document(names, args.lang, text))
        return 0 if known else 1
    said = WORDS[args.lang]
    if not known:
        print(said["unknown"])
        if names:
            print(said["beside"])
    if len(names) > 1 and not text:  # a class that several entries have
        print(*(row(name) for name in names), sep="\n")
        return 0
    for n, name in enumerate(names):
        if n:
            print()
        print(*told(name, args.lang, args.example, text), sep="\n")
    return 0 if known else 1


def told(name: str, lang: str, example: bool, text: str = "") -> list[str]:
    """The lines that are printed of an entry.

    >>> told("tracer-bool", "en", False)[0]
    'tracer-bool'
    """
    said = WORDS[lang]
    error = errors.entries().get(name)
    entry = error or errors.notices()[name]
    shown = [name]
    if about := seen_in(text):
        if line := about["line"]:
            shown.append(said["line"].format(**line))
            shown += [said["source"].format(**line)] if line["source"] else []
        if about["today"]:
            shown.append(said["today"].format(gone.told(about["today"], lang)))
        if about["package"] and name == errors.GONE:
            shown.append(said["package"].format(about["package"], about["package"]))
    for kind in "cause", "cure":
        written = getattr(entry, kind)[lang].strip()
        shown.append(said[kind].format("\n" + written if "\n" in written else written))
    if example:
        before = "before" if error else "prints"
        for title, code in (before, entry.code), ("after", entry.cured):
            if code.strip():
                shown += ["", said[title], "", indented(code)]
        shown.append("")
    elif entry.code.strip():
        shown.append(said["more"])
    address = errors.address(name, lang)
    if "://" not in address:
        address = said["book"].format(errors.headword(entry))
    return [*shown, said["place"].format(address)]


def indented(code: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in code.strip("\n").split("\n"))


def seen_in(text: str) -> dict[str, Any]:
    """What a traceback says of the reader's own program."""
    if not text:
        return {}
    found = errors.find(text)
    line = errors.own_line(text, found)
    today = gone.change(found.message) if found and found.name == errors.GONE else None
    package = errors.guilty(text, found)
    return {
        "line": line and {"file": line.file, "line": line.number, "source": line.source},
        "today": today,
        "package": "" if package in ("jax", "jaxlib", "flax", "optax") and today else package,
    }


def row(name: str) -> str:
    entry = errors.entries().get(name) or errors.notices()[name]
    return f"{name:<24} {errors.headword(entry)}"


def listed(said: dict[str, str]) -> str:
    """Every entry, in one line each."""
    rows = []
    for title, names in ("errors", errors.entries()), ("notices", errors.notices()):
        rows += [said[title], *(f"  {row(name)}" for name in names), ""]
    return "\n".join(rows).rstrip()


def document(names: list[str], lang: str, text: str = "") -> str:
    """What is known of errors as JSON, in ASCII, which every terminal and pipe can carry.

    >>> document([], "en")
    '{"language": "en", "entries": []}'
    """
    matched = []
    about = seen_in(text) if names else {}
    today = about.get("today")
    for name in names:
        error = errors.entries().get(name)
        entry = error or errors.notices()[name]
        matched.append(
            {
                "name": name,
                "kind": "error" if error else "notice",
                "title": errors.headword(entry),
                "line": about.get("line"),
                "today": gone.told(today, lang) if today else None,
                "cause": entry.cause[lang].strip(),
                "cure": entry.cure[lang].strip(),
                "code": entry.code,
                "cured": entry.cured,
                "address": errors.address(name, lang),
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
