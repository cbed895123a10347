"""What the report says, in both languages."""

from seejax.report.summary import SEEN_NOT, Advice, Program, Summary, difference

NEW = {"en": "a function that JAX had not seen", "zh": "JAX 没有见过的函数"}

TITLES = {
    "shapes": {
        "en": "`{subject}` ({where}) was traced again {times} for other arguments: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）因为入参不同，又追踪了 {count} 次，共 {seconds:.1f} 秒",
    },
    "new-function": {
        "en": "`{subject}` ({where}) came {times} as a new function: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）出现了 {count} 次，每次都是新的函数，共 {seconds:.1f} 秒",
    },
    "placement": {
        "en": "`{subject}` was compiled again {times} without a trace: {seconds:.1f} s ({where})",
        "zh": "`{subject}` 没有重新追踪，却又编译了 {count} 次，共 {seconds:.1f} 秒（{where}）",
    },
    "eager": {
        "en": "{count} small programs for operations outside `jit`: {seconds:.1f} s",
        "zh": "`jit` 之外的运算编译成了 {count} 个小程序，共 {seconds:.1f} 秒",
    },
    "constants": {
        "en": "a program holds {subject} of constants that it took from outside ({where})",
        "zh": "有一个程序装着 {subject} 的常数，都是从外面拿来的（{where}）",
    },
    "one-program": {
        "en": "`{subject}` alone took {seconds:.1f} s to make ({where})",
        "zh": "光是造 `{subject}` 就用了 {seconds:.1f} 秒（{where}）",
    },
    "no-cache": {
        "en": "{seconds:.1f} s of compiling will come again at the next start",
        "zh": "这 {seconds:.1f} 秒的编译，下次启动还要再来一遍",
    },
}
TITLES |= dict.fromkeys(("weak", "tree", "context", "static", "retraced"), TITLES["shapes"])
CURES = {
    "shapes": {
        "en": "Give it few shapes and dtypes: pad batches, drop the last short one, convert once.",
        "zh": "让形状和 dtype 少变：把批补齐，丢掉凑不满的一批，dtype 事先转换好。",
    },
    "weak": {
        "en": "A plain Python number and an array of the same type are two types to JAX. "
        "Pass one of them always: for example, write jnp.float32(0.1).",
        "zh": "Python 的数和同一类型的数组，对 JAX 来说是两种类型。"
        "请始终只传其中一种，例如写成 jnp.float32(0.1)。",
    },
    "static": {
        "en": "JAX names no difference: mostly a static argument has another value (`self` of a "
        "method may be one). Pass what changes as an array.",
        "zh": "JAX 说不出哪里不同，多半是静态参数的值变了（方法的 self 也可能是静态的）。"
        "会变的量请作为数组传进去。",
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
        "en": "Define it once, outside of the loop, and what wraps it too (jit, grad, partial); "
        "in the loop only call it.",
        "zh": "在循环外面只定义一次，包装它的 jit、grad、partial 也一样，循环里只管调用。",
    },
    "placement": {
        "en": "Its arguments came from another device, or sharded in another way. Place them alike "
        "before the first call, with jax.device_put.",
        "zh": "它的入参换了设备，或者换了切分方式。"
        "请在第一次调用之前用 jax.device_put 放好，以后不变。",
    },
    "eager": {
        "en": "Put these lines into a function under jit, or make the arrays with NumPy. "
        "A model of Flax is made in one program by nnx.jit(lambda: Net(nnx.Rngs(0)))().",
        "zh": "把这几行放进 jit 编译的函数里，或者用 NumPy 来造这些数组。"
        "Flax 的模型可以用 nnx.jit(lambda: Net(nnx.Rngs(0)))() 在一个程序里造好。",
    },
    "one-program": {
        "en": "Look at it with seejax.see. A Python loop copies its body into the program at every "
        "turn; jax.lax.scan keeps one copy. Large arrays from outside become constants.",
        "zh": "用 seejax.see 看看它。Python 循环每转一圈，循环体就往程序里多抄一份；"
        "jax.lax.scan 只留一份。函数从外面直接拿来的大数组会变成常数。",
    },
    "constants": {
        "en": "Pass these arrays as arguments: constants take memory twice, and keep old values.",
        "zh": "把这些数组作为入参传进去：常数要占两份内存，而且一直是旧的值。",
    },
    "no-cache": {
        "en": "Set JAX_COMPILATION_CACHE_DIR to a folder. Programs that compile in under a second "
        "are kept only with JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0.",
        "zh": "把 JAX_COMPILATION_CACHE_DIR 设成一个文件夹。编译用时不到一秒的程序，"
        "要再设 JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=0 才会留下。",
    },
}
WORDS = {
    "total": {
        "en": "{argv}: {wall:.1f} s, of which {made:.1f} s went into making programs "
        "(tracing {trace:.1f}, lowering {lower:.1f}, compiling {compile:.1f})",
        "zh": "{argv}：共 {wall:.1f} 秒，其中 {made:.1f} 秒用来造程序"
        "（追踪 {trace:.1f}，lowering {lower:.1f}，编译 {compile:.1f}）",
    },
    "count": {
        "en": "Programs compiled: {compiled}; read from the cache on the disk: {cached}",
        "zh": "编译了 {compiled} 个程序，另有 {cached} 个是从磁盘缓存里读来的",
    },
    "explaining": {
        "en": "Another {:.1f} s went into saying why JAX traces; a plain run does not have them.",
        "zh": "另有 {:.1f} 秒花在解释为什么追踪上，平时运行没有这一项。",
    },
    "ended": {"en": "It ended with {}.", "zh": "它以 {} 结束。"},
    "status": {"en": "It ended with status {}.", "zh": "它的退出状态是 {}。"},
    "killed": {"en": "It was killed by {}.", "zh": "它被 {} 信号杀掉了。"},
    "early": {
        "en": "The notes end early, since they could not be written.",
        "zh": "记录没有写完，后面的写不进去了。",
    },
    "first": {"en": "What to change first", "zh": "先改什么"},
    "nothing": {
        "en": "Nothing stands out: no function was traced anew for long, and none is slow to make.",
        "zh": "没有特别突出的：没有哪个函数反复追踪很久，也没有哪个程序造得特别慢。",
    },
    "tree": {
        "en": "Which lines of the script made JAX compile",
        "zh": "脚本的哪些行让 JAX 造了程序",
    },
    "no-jax": {"en": "{argv} did not import JAX.", "zh": "{argv} 没有导入 JAX。"},
    "times": {"en": "{} times", "zh": "{} 次"},
}


def why(programs: list[Program], lang: str) -> list[str]:
    """Why programs of one name were traced again: what JAX found different, each once."""
    causes = dict.fromkeys(difference(program.cause) for program in programs)
    return [NEW[lang] if text == SEEN_NOT else text for text in causes if text]


def title(advice: Advice, lang: str) -> str:
    times = "once" if advice.count == 1 else f"{advice.count} times"
    return TITLES[advice.kind][lang].format(**advice._asdict(), times=times)


def head(summary: Summary, lang: str) -> list[str]:
    """What stands on top: how long it took, how many programs, how it ended."""
    argv = " ".join(summary.argv)
    if not summary.version:
        lines = [WORDS["no-jax"][lang].format(argv=argv)]
    else:
        parts = {phase: summary.seconds(phase) for phase in ("trace", "lower", "compile")}
        made = [program for program in summary.programs if program.compiled]
        cached = sum(program.cached for program in made)
        lines = [
            WORDS["total"][lang].format(
                argv=argv, wall=summary.wall_s, made=sum(parts.values()), **parts
            ),
            WORDS["count"][lang].format(compiled=len(made) - cached, cached=cached),
        ]
        if summary.explaining_s >= 0.1:
            lines.append(WORDS["explaining"][lang].format(summary.explaining_s))
    return [*lines, *_ending(summary, lang)]


def _ending(summary: Summary, lang: str) -> list[str]:
    kind, _, rest = summary.ended.partition(" ")
    lines = []
    if kind == "status":
        lines.append(WORDS["status"][lang].format(rest))
    elif kind.startswith("SIG"):
        lines.append(WORDS["killed"][lang].format(kind))
    elif kind:
        lines.append(WORDS["ended"][lang].format(kind))
    return lines + ([] if summary.whole else [WORDS["early"][lang]])
