"""Rows of right answers that are easily lost, with wrong ones like them.

One row a line, longer than elsewhere: the file is read as a table. Each function draws a few rows:
a kind, the prediction, its gold, and whether a mathematician would call it right; then the
question, where it matters. A label follows from how the row is made.
"""

# ruff: noqa: E501, RUF001
# fmt: off

from math import comb, factorial

from benchmarks.grader_rows import Drawn, Random, frac, restyle, table


@table("sums", "a sum, product or integral = its value")
def _(r: Random) -> Drawn:
    n, a, k = r.randint(3, 40), r.randint(1, 30), r.choice("kijn")
    text, total = r.choice((
        (rf"\sum_{{{k}=1}}^{{{n}}} {k}", n * (n + 1) // 2), (rf"\sum_{{{k}=1}}^{n % 10} {a}{k}", a * (n % 10) * (n % 10 + 1) // 2),
        (rf"\sum_{{{k}=0}}^{{{n}}} ({k}+{a})", n * (n + 1) // 2 + a * (n + 1)), (rf"\prod_{{{k}=1}}^{{{n % 8 + 2}}} {k}", factorial(n % 8 + 2)),
        (rf"\int_0^{{{n}}} {2 * a}x\,dx", a * n * n), (rf"\int_{{0}}^{{{n}}} 3x^2 \, dx", n**3), (rf"\binom{{{n}}}{{2}}", comb(n, 2)),
        (rf"\lim_{{x\to {n}}} \frac{{x^2-{n * n}}}{{x-{n}}}", 2 * n), (rf"\sum_{{{k}=1}}^{{{n}}} {k}^2", n * (n + 1) * (2 * n + 1) // 6),
    ))
    yield "= value", restyle(r, f"{text}={total}"), str(total), True
    yield "label = sum = value", f"S={text}={total}", str(total), True
    if k == "k" and r.random() < 0.5:
        yield "= terms = value", rf"\sum_{{k=1}}^3 {n}k = {n}+{2 * n}+{3 * n} = {6 * n}", str(6 * n), True
        yield "= formula = value", rf"\sum_{{k=1}}^{{{n}}} k = \frac{{{n}\cdot {n + 1}}}{{2}} = {n * (n + 1) // 2}", str(n * (n + 1) // 2), True
        yield "= formula", rf"\sum_{{k=1}}^n {a}k = \frac{{{a}n(n+1)}}{{2}}", rf"\frac{{{a}n(n+1)}}{{2}}", True
        yield "= another formula", rf"\sum_{{k=1}}^n {a}k = \frac{{{a}n(n+1)}}{{2}}", rf"\frac{{{a}n(n-1)}}{{2}}", False
    yield "= another value", restyle(r, f"{text}={total + a}"), str(total), False
    yield "another gold", f"{text} = {total}", str(total + r.choice((-1, 1, a))), False
    yield "upper bound is no answer", f"{text} = {total}", str(n + total), False


@table("bound", "renamed bound variables")
def _(r: Random) -> Drawn:
    k, j = r.sample(["k", "j", "i", "m", "r", "t"], 2)
    top, a, b = r.choice(("n", "N", r"\infty", "2n")), r.randint(1, 30), r.randint(2, 30)
    shapes = [
        r"\sum_{@=1}^{%s} @^{%d}", r"\sum_{@=1}^{%s} \frac{1}{@^2+%d}", r"\prod_{@=1}^{%s} \left(1+\frac{%d}{@^2}\right)",
        r"\sum_{@=%d}^{100} (-1)^@ x^@", r"\sum_{@=0}^{%s} \binom{n}{@} %d^@", r"\int_0^{%d} \sqrt{1+@^3}\,d@",
        r"\int_{0}^{1} e^{-%d@^2} \, d@", r"\{@ \mid @ > %d\}", r"\{@ : %d < @ < 100\}",
    ]
    shape = r.choice(shapes)
    if r"\{" in shape:
        k, j = r.sample("xytu", 2)  # k would be an integer
    if "int" in shape:
        k, j = r.sample("xtus", 2)

    def write(name: str, number: int) -> str:
        args = (top, number) if shape.count("%") == 2 else (number,)
        return shape.replace("@", name) % args

    gold = write(k, a)
    yield "renamed", write(j, a), gold, True
    yield "as written", restyle(r, gold) if "{@" not in shape else gold, gold, True
    yield "another number", write(r.choice((j, k)), a + b), gold, False
    if "int" not in shape and r"\{" not in shape:
        head = write(j, a).partition("} ")[0]
        yield "renamed in half", f"{head}}} {shape.partition('} ')[2].replace('@', k)}".replace("%d", str(a)), gold, False
    sym = r.choice("abc")
    terms = rf"\sum_{{{k}=1}}^{{n}} {sym}_{k}^{{{b}}}"
    yield "terms of a sequence", rf"\sum_{{{j}=1}}^{{n}} {sym}_{j}^{{{b}}}", terms, True
    yield "terms, shifted", rf"\sum_{{{j}=0}}^{{n-1}} {sym}_{j}^{{{b}}}", terms, False
    yield "terms, another bound", rf"\sum_{{{j}=1}}^{{n+1}} {sym}_{j}^{{{b}}}", terms, False
    yield "terms, shifted", rf"\sum_{{{j}=0}}^{{n-1}} {sym}_{j}", rf"\sum_{{{k}=1}}^{{n}} {sym}_{k}", False
    f = r.choice("fgh")
    x, y = r.sample("xtsuz", 2)
    yield "function", f"{f}({y})={a}{y}^2+{b}", f"{f}({x})={a}{x}^2+{b}", True
    yield "function, another", f"{f}({y})={a}{y}^2+{b}", f"{f}({x})={a}{x}^2-{b}", False
    yield "function, free variable", f"{f}({y})={a}{x}^2+{b}", f"{f}({x})={a}{x}^2+{b}", False


@table("powers", "roots, pi, e times huge powers")
def _(r: Random) -> Drawn:
    base, e, c = r.choice((2, 3, 5, 6, 7)), r.randint(400, 5000), r.randint(2, 60)
    factor, other = r.sample([r"\pi", "e", r"\sqrt{3}", r"\sqrt{2}", r"\sqrt[3]{5}", r"\sqrt{11}", r"\pi^2"], 2)
    power = f"{base}^{{{e}}}"
    gold = rf"{power}{factor}" if factor != "e" else rf"{power} e"
    yield "order", rf"{factor} \cdot {power}", gold, True
    yield "product", rf"{power}\cdot {factor}", gold, True
    yield "split", rf"{base} \cdot {base}^{{{e - 1}}} \cdot {factor}", gold, True
    yield "square", rf"{base * base}^{{{e // 2}}} \cdot {factor}", f"{base}^{{{e // 2 * 2}}} {factor}", True
    yield "fraction", frac(rf"{base}^{{{e + 1}}} {factor}", base), gold, True
    yield "exponent", rf"{base}^{{{e + r.choice((-1, 1))}}} {factor}", gold, False
    yield "another factor", rf"{power} {other}", gold, False
    yield "factor left out", power, gold, False
    yield "times a number", rf"{c} \cdot {power} {factor}", gold, False
    yield "sign", f"-{gold}", gold, False
    yield "plus", f"{gold} + {c}", gold, False


@table("boxes", "several boxes, together the gold's list")
def _(r: Random) -> Drawn:
    x, num = r.choice("xynt"), r.choice((2, 2, 3))
    values = [str(v) for v in r.sample(range(-50, 99), num)]
    if r.random() < 0.3:
        values = [rf"{v}\sqrt{{2}}" for v in values]
    gold = ", ".join(values) if r.random() < 0.7 else rf"\{{{', '.join(values)}\}}"
    how = r.choice(("and", "or"))

    def write(found: list[str]) -> str:
        boxes = [rf"\boxed{{{one}}}" for one in found]
        ways = [
            "The solutions are " + f" {how} ".join(f"${box}$" for box in boxes) + ".",
            "So " + f" {how} ".join(f"${x} = {box}$" for box in boxes) + ".",
            "Answers: " + ", ".join(f"${box}$" for box in boxes),
            "".join(f"\n\nCase {at}: ${x} = {box}$." for at, box in enumerate(boxes, 1)),
            "We get $" + r", \quad ".join(boxes) + "$.", "\n".join(f"- ${box}$" for box in boxes),
        ]
        return r.choice(ways)

    yield "union", write(values), gold, True
    yield "union, another order", write(values[::-1]), gold, True
    yield "said twice", f"{write(values[:1])} That is, $\\boxed{{{values[0]}}}$.", values[0], True
    yield "list at the end", write(values) + f" So the solutions are $\\boxed{{{', '.join(values)}}}$.", gold, True
    yield "labels in the boxes", write([f"{x}={one}" for one in values]), gold, True
    yield "one left out", write(values[1:]), gold, False
    yield "one too many", write([*values, "101"]), gold, False
    yield "one is another", write([*values[1:], "101"]), gold, False
    yield "one of them", write(values), values[0], False


@table("chains", "x=y=z=a and labelled tuples")
def _(r: Random) -> Drawn:
    names = r.choice((["x", "y"], ["x", "y", "z"], ["a", "b", "c"], ["p", "q"], ["m", "n"]))
    nums = [str(v) for v in r.sample(range(-30, 60), len(names))]
    if r.random() < 0.3:
        nums[0] = frac(r.randint(1, 9) * 2 + 1, 2)
    label, one = f"({','.join(names)})", nums[0]
    each = r.choice((",", ", ", r",\ ", r",\; ", r"\text{ and }", r" \text{ and } ")) if len(names) == 2 else ", "
    pairs = [f"{a}={b}" for a, b in zip(names, nums, strict=True)]
    tuple_ = f"({','.join(nums)})"
    equal, three = "=".join([*names, one]), f"({','.join([one] * len(names))})"
    full = f"{label}={tuple_}"
    yield "labels | labelled tuple", each.join(pairs), full, True
    yield "labels | tuple", each.join(pairs), tuple_, True
    yield "labelled tuple | tuple", restyle(r, full), tuple_, True
    yield "tuple | labelled tuple", restyle(r, tuple_), full, True
    yield "labels, another order", each.join(pairs[::-1]), full, True
    yield "chain | chain", f"{' = '.join([*names, one])}", equal, True
    yield "chain | tuple", equal, f"{label}={three}", True
    yield "tuple | chain", f"{label}={three}", equal, True
    if len(names) == 3:
        yield "chain and one", f"{names[0]}={names[1]}={one}, {names[2]}={nums[1]}", f"{label}=({one},{one},{nums[1]})", True
        yield "chain and one, swapped", f"{names[0]}={names[1]}={one}, {names[2]}={nums[1]}", f"{label}=({one},{nums[1]},{nums[1]})", False
    point = r.choice("ABCPQ")
    yield "point", f"{point}{tuple_}", tuple_, True
    yield "point, another", f"{point}({','.join([*nums[:-1], '77'])})", tuple_, False
    swapped = [f"{a}={b}" for a, b in zip(names, nums[::-1], strict=True)]
    if nums != nums[::-1] and len(names) == 2:
        yield "labels, values swapped", each.join(swapped), r.choice((full, tuple_)), False
        yield "label swapped", f"({names[1]},{names[0]})={tuple_}", full, False
    yield "another value", each.join([*pairs[:-1], f"{names[-1]}=77"]), r.choice((full, tuple_)), False
    yield "one left out", pairs[0], full, False
    yield "chain, another value", "=".join([*names, nums[1]]), r.choice((equal, three)), False
    yield "chain | another tuple", equal, full, False
    yield "tuple, another value", f"({','.join([*nums[:-1], '77'])})", full, False


@table("points", "an interval and a point")
def _(r: Random) -> Drawn:
    x, (a, b, c) = r.choice("xytm"), sorted(r.sample(range(-40, 60), 3))
    left, low, right = r.choice((r"(-\infty,", r"(-\infty,", f"({a},", f"[{a},")), r.choice("<≤"), {"<": ")", "≤": "]"}
    span, point = f"{left}{b}{right[low]}", rf"\{{{c}\}}"
    gold = rf"{span}\cup{point}"
    first = "" if "infty" in left else f"{a}<" if left[0] == "(" else rf"{a}\le "
    bound = first + x + ("<" if low == "<" else r"\le ") + str(b)
    yield "union, swapped", rf"{point} \cup {span}", gold, True
    yield "union", restyle(r, gold), gold, True
    yield "in words", rf"{bound}\text{{ or }}{x}={c}", gold, True
    yield "in words, swapped", rf"{x} = {c} \text{{ or }} {bound}", gold, True
    yield "member", rf"{x}\in {gold}", gold, True
    yield "two points", rf"\{{{c},{c + 3}\}}\cup {span}", rf"{span}\cup\{{{c},{c + 3}\}}", True
    yield "from a point on", rf"{x}={b}\text{{ or }}{x}\ge {c}", rf"\{{{b}\}}\cup[{c},\infty)", True
    yield "from a point on, open", rf"{x}={b}\text{{ or }}{x}>{c}", rf"\{{{b}\}}\cup[{c},\infty)", False
    yield "another point", rf"{span}\cup\{{{c + 1}\}}", gold, False
    yield "another end", rf"{left}{b}{right['≤' if low == '<' else '<']}\cup{point}", gold, False
    yield "point left out", span, gold, False
    yield "in words, point left out", bound, gold, False
    yield "point alone", point, gold, False
    yield "words, another point", rf"{bound}\text{{ or }}{x}={c + 1}", gold, False


@table("signs", "(±1, 0) and the two points")
def _(r: Random) -> Drawn:
    a, b = r.randint(1, 60), r.randint(-30, 30)
    n = str(a) if r.random() < 0.6 else rf"{a}\sqrt{{2}}" if r.random() < 0.5 else frac(2 * a + 1, 2)
    first = r.random() < 0.5

    def at(one: str, other: object = b) -> str:
        return f"({one},{other})" if first else f"({other},{one})"

    gold, two = at(rf"\pm {n}"), r.choice((", ", ",", r"\text{ and }", r" \text{ or } "))
    points = [at(n), at(f"-{n}")]
    yield "two points | signs", two.join(points), gold, True
    yield "two points, swapped", two.join(points[::-1]), gold, True
    yield "signs | two points", at(rf"\pm{n}"), two.join(points), True
    yield "signs | set", gold, rf"\{{{', '.join(points)}\}}", True
    both, roots = rf"{b + 31}\pm\sqrt{{{a + 1}}}", [rf"{b + 31}{s}\sqrt{{{a + 1}}}" for s in "+-"]
    yield "roots", ", ".join(roots), both, True
    yield "one root", roots[0], both, False
    yield "one point", r.choice(points), gold, False
    yield "signs for one", gold, points[0], False
    yield "another place", at(n, b + 1) + two + at(f"-{n}", b), gold, False
    yield "another number", at(rf"\pm {a + 61}"), gold, False
    yield "one of them twice", two.join([points[0], at(n, b + 2)]), gold, False


@table("ordinals", "12^{th}")
def _(r: Random) -> Drawn:
    num = r.randint(1, 3000)
    last = "th" if num % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(num % 10, "th")
    ways = (r"%d^{\mathrm{%s}}", r"%d^{\text{%s}}", r"%d\text{%s}", "%d%s", r"%d^\text{%s}", r"%d^{%s}")
    if r.random() < 0.04:
        ways = (*ways, r"%d\textsuperscript{%s}")
    one, two = (r.choice(ways) % (num, last) for _ in range(2))
    yield "ordinal | number", one, str(num), True
    yield "number | ordinal", str(num), two, True
    yield "ordinal | ordinal", one, two, True
    yield "another number", one, str(num + r.choice((-1, 1, 10))), False
    yield "another ordinal", str(num + 1), two, False


@table("about", "the sign of approximation")
def _(r: Random) -> Drawn:
    x, num = r.choice("xrtVh"), r.randint(100, 99999)
    number, other = f"{num / 100:.2f}", f"{(num + r.choice((1, -1, 100))) / 100:.2f}"
    sign, unit = r.choice([r"\approx", r"\approx ", "≈", r"\simeq "] * 6 + [r"\approxeq "]), r.choice(("cm", "meters", "hours"))
    yield "sign", f"{sign}{number}", number, True
    yield "name and sign", f"{x} {sign} {number}", number, True
    yield "sign in the gold", number, f"{sign}{number}", True
    yield "both", f"{x}{sign}{number}", rf"{x} \approx {number}", True
    yield "unit", rf"{sign} {number}\text{{ {unit}}}", rf"{number}\text{{ {unit}}}", True
    word = r.choice(("approximately", "about", "roughly"))
    yield "word", rf"\text{{{word} }}{number}", number, True
    yield "word, another number", rf"\text{{{word} }}{other}", number, False
    yield "another number", f"{sign}{other}", number, False
    yield "another number, name", f"{x}{sign}{other}", number, False
    yield "gold with another number", number, f"{sign}{other}", False
    yield "another number, both", f"{x} {sign} {other}", rf"{x}\approx {number}", False


@table("money", "元, ₹ and other money")
def _(r: Random) -> Drawn:
    num = r.randint(2, 9000) if r.random() < 0.6 else r.randint(100, 99999) / 100
    code, (mark, words) = str(num), r.choice((("₹", "rupees"), ("€", "euros"), ("¥", "yen"), (r"\$", "dollars")))
    yuan = r.choice((f"{num}元", rf"{num}\text{{元}}", rf"{num}\text{{ 元}}", f"{num} 元"))
    sign = r.choice((f"{mark}{num}", rf"\text{{{mark}}}{num}", f"{mark} {num}", rf"\text{{{mark}{num}}}"))
    other = str(num + r.choice((1, 10, -1)))
    yield "yuan | number", yuan, code, True
    yield "number | yuan", code, yuan, True
    yield "sign | number", sign, code, True
    yield "number | sign", code, f"{mark}{num}", True
    yield "sign | words", sign, rf"{num}\text{{ {words}}}", True
    coin = r.choice((rf"US\${num}", rf"\text{{Rs. }}{num}", f"Rs. {num}", rf"\${num}\text{{ USD}}", f"{num} INR", rf"{num}\,€", f"￥{num}", f"{num}美元", f"{num}人民币"))
    yield "other spellings", coin, code, True
    yield "other spellings, another number", coin, other, False
    yield "jiao", rf"{num}角", f"{num}元", False
    yield "another number", r.choice((yuan, sign)), other, False
    yield "gold with another number", other, r.choice((yuan, sign)), False
    yield "another currency", sign, rf"{num}\text{{ {r.choice([w for w in ('rupees', 'euros', 'dollars') if w != words])}}}", False
    yield "yuan and rupees", yuan, f"₹{num}", False


HAN = [("厘米", "米", 100), ("米", "千米", 1000), ("克", "千克", 1000), ("分钟", "小时", 60), ("毫米", "厘米", 10), ("米", "公里", 1000), ("秒", "分钟", 60)]


@table("metric", "units in Chinese")
def _(r: Random) -> Drawn:
    num, (small, big, factor) = r.randint(2, 900), r.choice(HAN)
    way, other = r.sample(("%d%s", r"%d\text{%s}", r"%d\text{ %s}", "%d %s"), 2)
    gold, thing = way % (num, big), r.choice(("个", "人", "本", "只"))
    yield "converted", other % (num * factor, small), gold, True
    yield "converted, gold small", gold, other % (num * factor, small), True
    yield "same unit", other % (num, big), gold, True
    yield "unit left out", str(num), gold, True
    yield "counted", other % (num, thing), str(num), True
    yield "another unit", other % (num, small), gold, False
    yield "converted wrongly", other % (num * factor, big), way % (num, small), False
    yield "another number", other % (num + 1, big), gold, False
    yield "counted, another number", other % (num + 1, thing), str(num), False


@table("feet", "two units in one")
def _(r: Random) -> Drawn:
    big, small, factor, top = r.choice((
        ("feet", "inches", 12, 12), ("ft", "in", 12, 12), ("hours", "minutes", 60, 60), ("minutes", "seconds", 60, 60),
        ("meters", "centimeters", 100, 100), ("km", "m", 1000, 1000), ("kg", "g", 1000, 1000), ("dollars", "cents", 100, 100),
        ("lb", "oz", 16, 16), ("pounds", "ounces", 16, 16), ("weeks", "days", 7, 7), ("h", "min", 60, 60), ("years", "months", 12, 12),
    ))
    a, b = r.randint(1, 60), r.randint(1, top - 1)
    way = r.choice((r"%d\text{ %s }%d\text{ %s}", "%d %s %d %s", r"%d \text{ %s } %d \text{ %s}", r"%d\ \text{%s}\ %d\ \text{%s}", r"%d\text{ %s and }%d\text{ %s}", r"%d\text{ %s, }%d\text{ %s}"))
    both, total = way % (a, big, b, small), a * factor + b
    yield "both | small", both, f"{total} {small}", True
    yield "small | both", rf"{total}\text{{ {small}}}", both, True
    yield "both | both", f"{a} {big} {b} {small}", both, True
    if b * 4 % factor == 0:
        yield "both | big", both, rf"{a + b / factor:g}\text{{ {big}}}", True
    yield "another small number", both, f"{total + 1} {small}", False
    yield "first only", both, rf"{a}\text{{ {big}}}", False
    yield "last only", both, f"{b} {small}", False
    yield "swapped", way % (b, big, a, small), f"{total} {small}" if a != b else "0", False
    if total != a * 10 + b and total != int(f"{a}{b}"):
        yield "side by side", both, f"{a}{b} {small}", False


@table("digits", "groups of digits, fullwidth print")
def _(r: Random) -> Drawn:
    num = r.randint(1000, 10 ** r.randint(4, 13))
    mark = r.choice(("'", "'", r"\,", ",", "{,}", r"\ ", "’"))
    grouped, off = f"{num:,}".replace(",", mark), num + 10 ** r.randint(0, 3)
    wide = str.maketrans("0123456789,()-+.=", "０１２３４５６７８９，（）－＋．＝")
    a, b = r.sample(range(-300, 900), 2)
    yield "grouped", grouped, str(num), True
    yield "gold grouped", str(num), grouped, True
    yield "grouped, another number", grouped, str(off), False
    yield "gold grouped, another number", str(off), grouped, False
    yield "fullwidth", str(num).translate(wide), str(num), True
    yield "fullwidth pair", f"({a},{b})".translate(wide), f"({a},{b})", True
    yield "fullwidth decimal", f"{num / 100}".translate(wide), f"{num / 100}", True
    yield "fullwidth, sign", f"x=-{num}".translate(wide), f"-{num}", True
    yield "fullwidth, another number", str(off).translate(wide), str(num), False
    yield "fullwidth pair, swapped", f"({b},{a})".translate(wide), f"({a},{b})", False
    yield "fullwidth, sign left out", f"-{num}".translate(wide), str(num), False
    yield "fullwidth decimal, another", f"{off / 100}".translate(wide), f"{num / 100}", False


@table("cases", "systems and piecewise functions")
def _(r: Random) -> Drawn:
    x, (a, b, c) = r.choice("xtu"), r.sample(range(-20, 40), 3)
    end = r.choice((r"\\ ", r"\\", r" \\ ", "\\\\\n"))

    def cases(lines: list[str]) -> str:
        if r.random() < 0.1 and all("&" not in line for line in lines):
            return r"\left\{\begin{array}{l} " + end.join(lines) + r" \end{array}\right."
        return r"\begin{cases} " + end.join(lines) + r" \end{cases}"

    system, pair = [f"x={a}", f"y={b}"], r.choice((f"({a},{b})", f"(x,y)=({a},{b})", f"x={a}, y={b}"))
    yield "system | pair", cases(system), pair, True
    yield "system, another order", cases(system[::-1]), f"(x,y)=({a},{b})", True
    yield "pair | system", pair, cases(system), True
    yield "system, swapped", cases([f"x={b}", f"y={a}"]), pair, False
    yield "system, another number", cases([f"x={a}", f"y={c}"]), pair, False
    yield "system, one left out", cases([f"x={a}"]), f"(x,y)=({a},{b})", False
    if c not in (a, b):
        even, odd = r.choice(((r"n\text{ even}", r"n\text{ odd}"), (r"\text{if }n\text{ is even}", r"\text{if }n\text{ is odd}")))
        gold = cases([rf"{a}, & \text{{if }} n\text{{ is even}}", rf"{c}, & \text{{if }} n\text{{ is odd}}"])
        yield "parity", cases([f"{c} & {odd}", f"{a} & {even}"]), gold, True
        yield "parity, swapped", cases([f"{a} & {odd}", f"{c} & {even}"]), gold, False
        yield "parity, one of them", str(a), gold, False
    p = r.randint(0, 30)
    pieces = [(f"{x}^2{a:+d}" if a else f"{x}^2", rf"{x}\ge {p}"), (f"{b}{x}" if b not in (0, 1) else f"7{x}", f"{x}<{p}")]
    said = r.choice(("%s, & %s", r"%s & \text{if } %s", r"%s, & \text{if } %s", r"%s & %s"))
    gold = cases([said % piece for piece in pieces])
    name = r.choice(("", f"f({x})="))
    said = r.choice(("%s, & %s", r"%s & \text{if } %s", r"%s, & \text{if } %s"))
    yield "pieces", name + cases([said % piece for piece in pieces]), gold, True
    yield "pieces, another order", name + cases([said % piece for piece in pieces[::-1]]), gold, True
    mixed = [(pieces[0][0], pieces[1][1]), (pieces[1][0], pieces[0][1])]
    yield "pieces, conditions swapped", name + cases([said % piece for piece in mixed]), gold, False
    yield "pieces, another value", cases([said % (f"{x}^2+99", pieces[0][1]), said % pieces[1]]), gold, False
    yield "pieces, one of them", pieces[0][0], gold, False


@table("brackets", "text in brackets behind a number")
def _(r: Random) -> Drawn:
    num = r.randint(2, 5000) if r.random() < 0.8 else r.randint(2, 900) / 4
    thing, other = r.sample(("apples", "oranges", "students", "books", "legs", "dollars", "days", "cookies", "red marbles", "km", "hours", "boxes"), 2)
    gold = f"{num} ({thing})"
    said = r.choice((r"%s\text{ (%s)}", "%s (%s)", r"%s \text{(%s)}", r"%s\ (\text{%s})"))
    yield "number alone", str(num), gold, True
    yield "both", said % (num, thing), gold, True
    yield "as a unit", rf"{num}\text{{ {thing}}}", gold, True
    yield "gold is a number", said % (num, thing), str(num), True
    yield "another number", said % (num + 1, thing), gold, False
    yield "another number alone", str(num + r.choice((-1, 1, 10))), gold, False
    yield "another thing", said % (num, other), gold, False
    yield "gold is another number", said % (num, thing), str(num + 1), False
