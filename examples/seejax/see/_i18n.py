"""The pictures' own words in Chinese: one table, for `Span(word=True)`.

Text output is English. HTML says each phrase in both languages and shows the one of the page.
A number or a name inside a phrase stands for itself: `{}` in the table.
"""

import functools
import re

CHINESE = {
    # header
    "{} equation": "{} 个方程",
    "{} equations": "{} 个方程",
    "{} kernel": "{} 个内核",
    "{} kernels": "{} 个内核",
    "{} fusion": "{} 个融合算子",
    "{} fusions": "{} 个融合算子",
    "{} call": "{} 次调用",
    "{} calls": "{} 次调用",
    "{} trace": "{} 次追踪",
    "{} traces": "{} 次追踪",
    "calls of": "调用记录",
    "not traced": "没能追踪",
    "backward": "反向",
    "gone or merged": "已消去或并入别的方程",
    ", ": "，",
    " (": "（",
    ")": "）",
    # doubt
    "approximate: lines matched by primitive": "近似：按原语与行对应",
    "{} instruction of unknown origin": "{} 条指令来历不明",
    "{} instructions of unknown origin": "{} 条指令来历不明",
    "{} has changed since it was imported": "{} 在导入之后改动过",
    # trace: StableHLO
    "StableHLO": "StableHLO",
    "lines of StableHLO not tied": "StableHLO 的各行没有找到对应",
    # panes
    "Python source": "Python 源码",
    "jaxpr": "jaxpr",
    "optimized HLO": "优化后的 HLO",
    "source not available": "看不到源码",
    "+ {} lines": "还有 {} 行",
    "… {} more in {}": "… 其余 {} 行见 {}",
    "… {} more": "… 还有 {} 个",
    "line {}": "第 {} 行",
    "fusion {}": "融合算子 {}",
    "kernel {}": "内核 {}",
    # modules
    "modules": "模块",
    "module": "模块",
    "equations": "方程",
    "FLOPs": "FLOPs",
    "results in bytes": "结果的大小",
    "parameters, and what is inside fusions: .hlo": "入参和融合算子里面的指令见 .hlo",
    "search": "查找",
    "show only {}": "只看 {}",
    "words of a line, or a module": "一行里的词，或者模块名",
    "lines": "行",
    # calls: columns, outcomes, causes
    "outcome": "结果",
    "trace ms": "追踪 ms",
    "compile ms": "编译 ms",
    "run ms": "运行 ms",
    "signature": "签名",
    "cause": "原因",
    "wall time of each call": "每次调用的用时",
    "compiled": "追踪并编译",
    "traced": "只追踪",
    "recompiled": "重新编译",
    "cached": "命中缓存",
    "failed": "出错",
    "eager": "逐条执行",
    "first call": "第一次调用",
    "after a failed call": "上一次调用出错",
    "first call that is jitted": "第一次经过 jit 的调用",
    "not jitted: disable_jit": "disable_jit 关掉了 jit",
    "traced before, not compiled": "追踪过，还没有编译",
    "caches cleared": "缓存被清空",
    "unknown": "不明",
    # axes
    "vmap of": "vmap：",
    "{} example": "{} 个样本",
    "{} examples": "{} 个样本",
    "batch axis": "批量维",
    "batch axis {}": "批量维 {}",
    "arguments": "入参",
    "results": "结果",
    "outside": "外面",
    "inside": "里面",
    "jaxpr of one example": "一个样本的 jaxpr",
    "jaxpr of the batch": "一批样本的 jaxpr",
    "under {}": "在 {} 之下",
    "not under a transformation": "不在变换之下",
    # grad
    "grad of": "求梯度：",
    "forward": "前向",
    "forward program": "前向程序",
    "backward program": "反向程序",
    "recomputed": "重新计算",
    "{} {} cross": "{} {} 带到反向",
    "{} {} of it computed": "其中 {} {} 是算出来的",
    "the program before the compiler": "编译器处理之前的程序",
    "what crosses from forward to backward": "从前向带到反向的值",
    "value": "值",
    "bytes": "大小",
    "made by": "来自",
    "… {} alike": "等 {} 个",
    "argument": "入参",
    "constant": "常量",
    "not read": "没有读",
    # tree
    "{} leaf": "{} 片叶子",
    "{} leaves": "{} 片叶子",
    "{} of unknown size": "{} 片大小不明",
    "{} difference": "{} 处不同",
    "{} differences": "{} 处不同",
    "tree": "树",
    "first tree": "第一棵树",
    "second tree": "第二棵树",
    "differences": "不同之处",
    "path": "路径",
    "difference": "不同",
    "root": "根",
    "no leaf": "没有叶子",
    "size unknown": "大小不明",
    "static": "静态",
    "missing": "缺少",
    "container": "容器",
    "type": "类型",
    "shape": "形状",
    "dtype": "dtype",
    # keys
    "keys of": "随机数键的来历",
    "keys": "随机数键",
    "{} key": "{} 个键",
    "{} keys": "{} 个键",
    "{} use": "{} 次使用",
    "{} uses": "{} 次使用",
    "{} reused": "{} 个重复使用",
    "reused": "重复使用",
    "no use seen": "没有看到使用",
    "{} with no use seen": "{} 个没有看到使用",
    "no key was seen": "没有看到随机数键",
    "calls with unknown keys": "键不明的调用",
    "{} call with unknown keys": "{} 次调用的键不明",
    "{} calls with unknown keys": "{} 次调用的键不明",
    # memory
    "{} {} without donation": "不捐赠时 {} {}",
    "on each of {} devices": "{} 个设备上各要这么多",
    "what the program asks for on a device; other live arrays are not in it": (
        "程序在一个设备上要用的内存，不包括其他还活着的数组"
    ),
    "what becomes of each argument": "每个入参的内存归谁",
    "program": "程序",
    "without donation": "不捐赠",
    "with donation": "捐赠",
    "taken over": "接用",
    "temporary": "临时",
    "constants": "常量",
    "code": "代码",
    "host": "主机",
    "total": "合计",
    "its memory": "它的内存",
    "kept for the caller": "留给调用者",
    "taken over by": "接用它的是",
    "donated, not taken": "捐赠了，没有用上",
    "donated, not read": "捐赠了，程序没有读它",
    "donated, unknown whether taken": "捐赠了，用没用上不明",
    # the page of `python -m seejax.see`
    "the picture is of the last save that ran": "图是上一次跑通时的",
    "the command has ended": "命令已经结束",
    "array arguments: floats are standard normal, integers 0, booleans True": (
        "数组入参的值：浮点数取自标准正态分布，整数为 0，布尔值为 True"
    ),
    # shards
    "before": "之前",
    "after": "之后",
    "who holds what": "每一块放在哪些设备上",
    "mesh": "设备网格",
    "array": "数组",
    "spec": "分片",
    "blocks × copies": "块数 × 份数",
    "on each": "每份大小",
    "{} array": "{} 个数组",
    "{} arrays": "{} 个数组",
    "{} block": "{} 块",
    "{} blocks": "{} 块",
    "{} device": "{} 个设备",
    "{} devices": "{} 个设备",
    "{} {} on each": "每个设备 {} {}",
    "{} {} to {} {} on each": "每个设备 {} {} 到 {} {}",
    "on the host": "在主机上",
    "{} on the host": "{} 个在主机上",
    "{} unknown": "{} 个不明",
    "deleted": "已删除",
    "{} deleted": "{} 个已删除",
    "{} device of other processes, in brackets": "{} 个设备属于其他进程（写在括号里）",
    "{} devices of other processes, in brackets": "{} 个设备属于其他进程（写在括号里）",
    # kernel
    "{} program": "{} 个程序",
    "{} programs": "{} 个程序",
    "blocks": "各块",
    "block": "块",
    "grid": "网格",
    "scratch": "暂存",
    "result": "结果",
    "programs, in order": "程序，按顺序",
    "reaches outside of {}": "超出了 {}",
    "a block lies outside of its array": "有一块在数组外面",
    "programs that may run at once get the same block of a result": (
        "可能同时运行的程序拿到结果的同一块"
    ),
    "a block of a result is left, and given again later": "结果的一块交出之后，又再次发给程序",
    "a block of a result is given to no program": "结果有一块没有发给任何程序",
    # timeline
    "{} run": "{} 次运行",
    "{} runs": "{} 次运行",
    "{} ms": "{} ms",
    "{} run not ended with the block": "{} 次运行到 with 块结束时还没有完",
    "{} runs not ended with the block": "{} 次运行到 with 块结束时还没有完",
    "nothing was recorded": "什么也没有记录到",
    "not recorded yet": "还没有记录完",
    "events": "事件",
    "thread {}": "线程 {}",
    "device {}": "设备 {}",
    "call": "调用",
    "run": "运行",
    "read": "读取",
    "wait": "等待",
    "mark": "标记",
    "lower": "lowering",
    "compile": "编译",
    "trace": "追踪",
    "in the thread that called": "就在发起调用的线程里",
}


def count(n: int, noun: str) -> str:
    """So many of them.

    >>> count(1, "call"), count(1200, "equation")
    ('1 call', '1200 equations')
    """
    return f"{n} {noun}{'s' * (n != 1)}"


def size(n: int) -> str:
    """Bytes, in steps of 1000.

    >>> size(12), size(1234), size(98_765_432)
    ('12 B', '1.2 kB', '98.8 MB')
    """
    power = min(5, (len(str(n)) - 1) // 3)
    return f"{n} B" if power == 0 else f"{n / 1000**power:.1f} {' kMGTP'[power]}B"


def number(n: int) -> str:
    """A large number, in steps of 1000.

    >>> number(999), number(1234), number(98_765_432_100)
    ('999', '1.2 k', '98.8 G')
    """
    power = min(6, (len(str(n)) - 1) // 3)
    return str(n) if power == 0 else f"{n / 1000**power:.1f} {' kMGTPE'[power]}"


@functools.cache
def _patterns() -> list[tuple[re.Pattern[str], str]]:
    return [
        (re.compile(re.escape(english).replace(r"\{\}", r"(\S+)")), chinese)
        for english, chinese in CHINESE.items()
        if "{}" in english
    ]


@functools.lru_cache(maxsize=4096)
def chinese(text: str) -> str | None:
    """The phrase in Chinese; None if it is not one of ours.

    >>> chinese("6 equations"), chinese("first call"), chinese("x: shape (3,) → (4,)")
    ('6 个方程', '第一次调用', None)
    """
    if text in CHINESE:
        return CHINESE[text]
    for pattern, form in _patterns():
        if match := pattern.fullmatch(text):
            return form.format(*match.groups())
    return None
