"""What the report says, in both languages."""

from seejax.report import opening
from seejax.report.summary import SEEN_NOT, Advice, Program, Summary, difference, near, place
from seejax.see._i18n import size as in_bytes

NEW = {"en": "a function that JAX had not seen", "zh": "JAX 没有见过的函数"}

TITLES = {
    "shapes": {
        "en": "`{subject}` ({where}) was traced again {times} for other arguments: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）因为入参不同，又追踪了 {count} 次，共 {seconds:.1f} 秒",
    },
    "sharding": {
        "en": "`{subject}` ({where}) was traced again {times} for arguments that lie elsewhere: "
        "{seconds:.1f} s",
        "zh": "`{subject}`（{where}）因为入参放在别处，又追踪了 {count} 次，共 {seconds:.1f} 秒",
    },
    "static": {
        "en": "`{subject}` ({where}) was traced again {times} for another static argument: "
        "{seconds:.1f} s",
        "zh": "`{subject}`（{where}）因为静态参数不同，又追踪了 {count} 次，共 {seconds:.1f} 秒",
    },
    "context": {
        "en": "`{subject}` ({where}) was traced again {times} under another setting: "
        "{seconds:.1f} s",
        "zh": "`{subject}`（{where}）因为设置变了，又追踪了 {count} 次，共 {seconds:.1f} 秒",
    },
    "retraced": {
        "en": "`{subject}` ({where}) was made again {times}: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）又造了 {count} 次，共 {seconds:.1f} 秒",
    },
    "new-function": {
        "en": "`{subject}` ({where}) came again {times}, as a new function: {seconds:.1f} s",
        "zh": "`{subject}`（{where}）又来了 {count} 次，每次都是新的函数，共 {seconds:.1f} 秒",
    },
    "placement": {
        "en": "`{subject}` was compiled again {times} without a trace: {seconds:.1f} s ({where})",
        "zh": "`{subject}` 没有重新追踪，却又编译了 {count} 次，共 {seconds:.1f} 秒（{where}）",
    },
    "eager": {
        "en": "{count} programs for operations outside `jit`: {seconds:.1f} s",
        "zh": "`jit` 之外的运算编译成了 {count} 个程序，共 {seconds:.1f} 秒",
    },
    "in-trace": {
        "en": "while `{subject}` was traced, {programs} ran: {seconds:.1f} s",
        "zh": "追踪 `{subject}` 的时候，另有 {count} 个程序当场编译、执行，共 {seconds:.1f} 秒",
    },
    "constants": {
        "en": "arrays of {subject} from outside were compiled {times} into a program ({where})",
        "zh": "程序把外面的 {subject} 数组当成常数装了进去，共 {count} 次（{where}）",
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
TITLES |= dict.fromkeys(("weak", "unnamed", "tree", "metadata"), TITLES["shapes"])
CURES = {
    "shapes": {
        "en": "Give it few shapes and dtypes: pad batches, drop the last short one, convert once.",
        "zh": "让形状和 dtype 少变：把批补齐，丢掉凑不满的一批，dtype 事先转换好。",
    },
    "weak": {
        "en": "A number of Python has a weak type, and so has an array made of such numbers "
        "alone, as jnp.asarray(0.1). Write the dtype everywhere: jnp.asarray(0.1, jnp.float32).",
        "zh": "Python 的数是弱类型，只由这种数算出来的数组（例如 jnp.asarray(0.1)）也是。"
        "请处处写明 dtype：jnp.asarray(0.1, jnp.float32)。",
    },
    "sharding": {
        "en": "Place its arguments alike before the first call, with jax.device_put.",
        "zh": "请在第一次调用之前用 jax.device_put 把入参放好，以后不变。",
    },
    "static": {
        "en": "Each value of a static argument has a program of its own. "
        "Pass what changes as an array.",
        "zh": "静态参数的每一个值都有一个程序。会变的量请作为数组传进去。",
    },
    "unnamed": {
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
    "metadata": {
        "en": "Something fixed in an object differs, such as train or eval mode, a layer or a "
        "Python number: one program for each value. Two modes are no harm; what changes often "
        "should be an array.",
        "zh": "对象里不是数组的东西变了，例如训练或评估模式、某一层、一个 Python 的数："
        "每一个值都有一个程序。两种模式没有关系，经常变的就应当是数组。",
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
        "en": "Put these lines into a function under jit, or make the arrays with NumPy. (With "
        "Flax: nnx.jit(lambda: Net(nnx.Rngs(0)))() makes a model in one program.)",
        "zh": "把这几行放进 jit 编译的函数里，或者用 NumPy 来造这些数组。"
        "（用 Flax 的话，nnx.jit(lambda: Net(nnx.Rngs(0)))() 在一个程序里造好整个模型。）",
    },
    "in-trace": {
        "en": "These operations are no part of it: they ran once, with the values of that moment "
        "(as jax.ensure_compile_time_eval asks for), and it keeps what they gave as constants. "
        "What may change has to be an argument.",
        "zh": "这些运算不在它的程序里：它们只按当时的值算了一次（jax.ensure_compile_time_eval "
        "就是这个意思），结果成了它的常数。会变的量要作为入参传进去。",
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
    "largest": {"en": "The largest programs", "zh": "最大的程序"},
    "equations": {"en": "{} equations", "zh": "{} 个方程"},
    "one equation": {"en": "{} equation", "zh": "{} 个方程"},
    "most from": {"en": ", most from {}", "zh": "，多数来自 {}"},
    "at most": {"en": "at most {}", "zh": "最多 {}"},
    "and": {"en": ", ", "zh": "，"},
    "memory": {
        "en": "arguments {arguments}, results {results}, temporary {temporary}",
        "zh": "入参 {arguments}，结果 {results}，临时 {temporary}",
    },
    "taken": {
        "en": ", of the results {taken} in donated arguments",
        "zh": "，结果里有 {taken} 直接写进捐赠的入参",
    },
    "open": {
        "en": "look at it (the script runs first, without its arguments): {}",
        "zh": "打开来看（会先运行脚本，不带参数）：{}",
    },
    "write": {
        "en": "no command can {}; to look at it, write before {}: {}",
        "zh": "命令行{}；要看的话，在 {} 之前写：{}",
    },
    "name it": {"en": "name it", "zh": "叫不出它的名字"},
    "give its arguments": {"en": "give its arguments", "zh": "写不出它的入参"},
    "nameless": {
        "en": "{} calls no jitted function by its name, and see.trace needs one",
        "zh": "{} 没有直接用名字调用 jit 过的函数，see.trace 打不开它",
    },
    "no-jax": {"en": "{argv} did not import JAX.", "zh": "{argv} 没有导入 JAX。"},
    "times": {"en": "{} times", "zh": "{} 次"},
}

TOGETHER = {
    "heading": {"en": "{}: {} processes", "zh": "{}：{} 个进程"},
    "columns": {
        "en": ("process", "seconds", "programs", "tracing", "lowering", "compiling", "ended"),
        "zh": ("进程", "秒", "程序", "追踪", "lowering", "编译", "结束"),
    },
    "missing": {
        "en": "Process {} has left no report, or has not ended.",
        "zh": "进程 {} 没有留下报告，或者还没有结束。",
    },
    "alike": {
        "en": "All of them compiled the same programs, equally often.",
        "zh": "各个进程编译的程序相同，次数也相同。",
    },
    "different": {
        "en": "They did not compile the same programs. What is computed over the devices of all "
        "has to be called by all: else the others wait for ever.",
        "zh": "各个进程编译的程序不一样。用到所有进程的设备的运算，每个进程都得调用，"
        "不然其他进程会一直等下去。",
    },
    "count": {"en": "process {}: {}", "zh": "进程 {}：{} 次"},
    "took": {"en": "process {}: {:.1f} s", "zh": "进程 {}：{:.1f} 秒"},
    "one": {"en": "This is process {} of {}.", "zh": "这是 {1} 个进程里的进程 {0}。"},
}


def why(programs: list[Program], lang: str) -> list[str]:
    """Why programs of one name were traced: what JAX found different, each once."""
    causes = dict.fromkeys(difference(program.cause) for program in programs)
    if list(causes) == [SEEN_NOT] and len(programs) == 1:
        return []  # so it is for every function at first
    return [NEW[lang] if text == SEEN_NOT else text for text in causes if text]


def size(programs: list[Program], lang: str) -> str:
    """Equations and bytes of programs of one name; "" if nothing is known."""
    large = max(programs, key=lambda program: (program.equations, program.bytes))
    parts = [equations(large.equations, lang)] if large.equations else []
    if memory := max(program.bytes for program in programs):
        parts.append(in_bytes(memory))
    text = WORDS["and"][lang].join(parts)
    sizes = {(program.equations, program.bytes) for program in programs}
    return WORDS["at most"][lang].format(text) if len(sizes) > 1 and text else text


def equations(n: int, lang: str) -> str:
    return WORDS["one equation" if n == 1 else "equations"][lang].format(n)


def parts(program: Program, wall_s: float, lang: str) -> list[str]:
    """What a large program is made of: its equations, its memory; and how it is opened."""
    lines = [f"{near(file)}:{line} ({n})" for (file, line, _), n in program.lines[:3]]
    found = [equations(program.equations, lang)]
    if lines:
        found[0] += WORDS["most from"][lang].format(", ".join(lines))
    if program.memory:
        memory = {part: in_bytes(n) for part, n in program.memory.items()}
        found.append(WORDS["memory"][lang].format(**memory))
        if program.memory["taken"]:
            found[-1] += WORDS["taken"][lang].format(**memory)
    where = place(program.stack)
    if typed := opening.command(program, wall_s):
        found.append(WORDS["open"][lang].format(f"`{typed}`"))
    elif written := opening.line(program):
        lacks = WORDS["give its arguments" if program.function else "name it"][lang]
        found.append(WORDS["write"][lang].format(lacks, where, f"`{written}`"))
    elif program.stack:
        found.append(WORDS["nameless"][lang].format(where))
    return found


def title(advice: Advice, lang: str) -> str:
    times = "once" if advice.count == 1 else f"{advice.count} times"
    programs = "one program" if advice.count == 1 else f"{advice.count} programs"
    return TITLES[advice.kind][lang].format(**advice._asdict(), times=times, programs=programs)


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
    if summary.processes > 1:
        lines.append(TOGETHER["one"][lang].format(summary.process, summary.processes))
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
