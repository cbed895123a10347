"""What the report says, in both languages."""

from seejax.report.summary import Advice, Program, Summary, difference

EARLY = {
    "en": "The notes end early, since they could not be written.",
    "zh": "记录没有写完，后面的写不进去了。",
}
NEW = {"en": "a function that JAX had not seen", "zh": "JAX 没有见过的函数"}

TITLES = {
    "shapes": {
        "en": "`{subject}` ({where}) traced for other arguments, {count} times: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）因为入参不同，又追踪了 {count} 次，{seconds:.1f} 秒",
    },
    "new-function": {
        "en": "`{subject}` ({where}) made {count} times, a new function each time: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）造了 {count} 次，每次都是新的函数，{seconds:.1f} 秒",
    },
    "eager": {
        "en": "{count} small programs for operations outside `jit`: {seconds:.1f} s",
        "zh": "`jit` 之外的运算编译成了 {count} 个小程序，{seconds:.1f} 秒",
    },
    "constants": {
        "en": "a program holds {subject} of constants that it took from outside ({where})",
        "zh": "有一个程序装着 {subject} 的常数，都是从外面拿来的（{where}）",
    },
    "one-program": {
        "en": "`{subject}` alone took {seconds:.1f} s to make ({where})",
        "zh": "光是 `{subject}` 就用了 {seconds:.1f} 秒（{where}）",
    },
    "no-cache": {
        "en": "nothing is kept for the next start: {seconds:.1f} s of compiling will come again",
        "zh": "编译好的程序没有留到下次：这 {seconds:.1f} 秒的编译，下次启动还要再来一遍",
    },
}
TITLES |= dict.fromkeys(("tree", "context", "static", "retraced"), TITLES["shapes"])
CURES = {
    "shapes": {
        "en": "Give it few shapes and dtypes: pad batches, drop the last short one, convert once.",
        "zh": "让形状和 dtype 少变：把批补齐，丢掉凑不满的一批，dtype 事先转换好。",
    },
    "static": {
        "en": "JAX names no difference: mostly a static argument has another value. "
        "Pass what changes as an array.",
        "zh": "JAX 说不出哪里不同，多半是静态参数的值变了。会变的量请作为数组传进去。",
    },
    "tree": {
        "en": "Nest the arguments in the same way, with the same names, and pass each by "
        "position or each by name.",
        "zh": "容器的嵌套方式和里面的名字要保持不变；同一个入参，要么总按位置传，要么总按名字传。",
    },
    "context": {
        "en": "Choose this setting once, before the first call.",
        "zh": "这个设置请在第一次调用之前定下来，以后不再变。",
    },
    "retraced": {
        "en": "Pass the same kind of arguments each time.",
        "zh": "每次传入同一类入参。",
    },
    "new-function": {
        "en": "Make the function, and its jit, once outside of the loop, and call it there.",
        "zh": "把函数和它的 jit 放到循环外面，只造一次，在循环里只管调用。",
    },
    "eager": {
        "en": "Put the lines named here into a function under jit, or make the arrays with NumPy.",
        "zh": "把这几行放进 jit 编译的函数里，或者用 NumPy 来造这些数组。",
    },
    "one-program": {
        "en": "Look at it with seejax.see. A Python loop over layers or steps writes each turn "
        "out; jax.lax.scan has one. Large arrays that come from outside become constants.",
        "zh": "用 seejax.see 看看它。Python 循环会把每一层、每一步都写进程序，"
        "换成 jax.lax.scan 就只有一份；"
        "函数从外面直接拿来的大数组会变成常数。",
    },
    "constants": {
        "en": "Pass these arrays as arguments: constants take memory twice, and keep old values.",
        "zh": "把这些数组作为入参传进去：常数要占两份内存，而且一直是旧的值。",
    },
    "no-cache": {
        "en": "Set JAX_COMPILATION_CACHE_DIR to a folder.",
        "zh": "把 JAX_COMPILATION_CACHE_DIR 设成一个文件夹。",
    },
}
WORDS = {
    "total": {
        "en": "{argv}: {wall:.1f} s, of which JAX made programs for {made:.1f} s "
        "(tracing {trace:.1f}, lowering {lower:.1f}, compiling {compile:.1f})",
        "zh": "{argv}：共 {wall:.1f} 秒，其中 {made:.1f} 秒 JAX 在造程序"
        "（追踪 {trace:.1f}，降到 StableHLO {lower:.1f}，编译 {compile:.1f}）",
    },
    "count": {
        "en": "{compiled} programs compiled, {cached} of them read from the cache on the disk",
        "zh": "编译了 {compiled} 个程序，其中 {cached} 个是从磁盘缓存里读来的",
    },
    "ended": {
        "en": {
            "": "",
            "killed": "It was killed.",
            "unwritten": EARLY["en"],
            "other": "It ended with {}.",
        },
        "zh": {
            "": "",
            "killed": "它是被杀掉的。",
            "unwritten": EARLY["zh"],
            "other": "它以 {} 结束。",
        },
    },
    "first": {"en": "What to change first", "zh": "先改什么"},
    "nothing": {
        "en": "Nothing stands out: no function was traced anew for long, and none is slow to make.",
        "zh": "没有特别突出的：没有哪个函数反复追踪很久，也没有哪个程序特别难造。",
    },
    "tree": {
        "en": "Where programs were made, by the lines of the script",
        "zh": "程序是在脚本的哪些行上造的",
    },
    "no-jax": {"en": "{argv} did not import JAX.", "zh": "{argv} 没有导入 JAX。"},
    "times": {"en": "{} times", "zh": "{} 次"},
}


def why(programs: list[Program], lang: str) -> list[str]:
    """Why programs of one name were traced again: what JAX found different, each once."""
    said = dict.fromkeys(difference(program.cause) for program in programs)
    return [NEW[lang] if text == "never seen function" else text for text in said if text]


def title(advice: Advice, lang: str) -> str:
    return TITLES[advice.kind][lang].format(**advice._asdict())


def head(summary: Summary, lang: str) -> list[str]:
    """What stands on top: how long it took, how many programs, how it ended."""
    argv = " ".join(summary.argv)
    if not summary.version:
        said = [WORDS["no-jax"][lang].format(argv=argv)]
    else:
        parts = {phase: summary.seconds(phase) for phase in ("trace", "lower", "compile")}
        compiled = [program for program in summary.programs if program.compiled]
        said = [
            WORDS["total"][lang].format(
                argv=argv, wall=summary.wall_s, made=sum(parts.values()), **parts
            ),
            WORDS["count"][lang].format(
                compiled=len(compiled), cached=sum(program.cached for program in compiled)
            ),
        ]
    ways = WORDS["ended"][lang]
    ended = ways.get(summary.ended, ways["other"].format(summary.ended))
    return [*said, ended] if ended else said
