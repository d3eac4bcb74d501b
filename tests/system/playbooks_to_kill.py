"""Small playbooks that use every part of the language, for runs that are disturbed: same input, same end, always.

Their tools are deterministic, what they write outside is idempotent, and they take long enough to be hit.
"""

from typing import Any, NamedTuple


class Case(NamedTuple):
    """A playbook and how it must end.

    `is_cancelled`: the test cancels it once its child runs a command. `by_chance`: a step whose rows are claimed in
    whatever order; a later step tells what came of it.
    """

    name: str
    ends: str
    workflow: str
    root: dict[str, Any] = {}
    is_cancelled: bool = False
    by_chance: str = ""


CHILDREN = {
    "kill/child": """
        - step: start
          loop: {in: "{{ range(n | int) | list }}", iterator: i, spec: {mode: sequential}}
          tool:
            kind: python
            input: {sum: "{{ ctx.sum | default(0) }}"}
            code: "import time; time.sleep(0.03); result = {'sum': sum + i}"
            spec: {policy: {rules: [{else: {do: continue, set: {ctx.sum: "{{ output.data.sum }}"}}}]}}
          next: {arcs: [{step: last}]}
        - {step: last, tool: {kind: python, input: {s: "{{ ctx.sum }}", n: "{{ n | int }}"},
            code: "result = {'sum': s, 'n': n}"}}
    """,
    "kill/parent_of_child": """
        - step: start
          tool:
            - {name: twice, kind: python, input: {n: "{{ n | int }}"}, code: "result = {'n': n * 2}"}
            - {name: sub, kind: playbook, path: kill/child, input: {n: "{{ twice.n }}"}, return_step: last}
          next: {arcs: [{step: last}]}
        - {step: last, tool: {kind: python, input: {s: "{{ start.sub.sum }}"}, code: "result = {'total': s + 1}"}}
    """,
    "kill/failing_child": """
        - {step: start, tool: {kind: python, code: "import time; time.sleep(0.2); result = 1"},
            next: {arcs: [{step: breaks}]}}
        - {step: breaks, tool: {kind: python, code: "raise ValueError('the child broke')"}}
    """,
    "kill/endless_child": """
        - {step: start, tool: {kind: shell, command: "sleep 60"}}
    """,
}

LOOPS = [
    Case(
        "sequential items that add up in ctx",
        "COMPLETED",
        """
        - step: start
          loop: {in: 25, iterator: n, spec: {mode: sequential}}
          tool:
            kind: python
            input: {seen: "{{ ctx.seen | default([]) }}"}
            code: "result = seen + [n]"
            spec: {policy: {rules: [{else: {do: continue, set: {ctx.seen: "{{ output.data }}"}}}]}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {seen: "{{ ctx.seen }}"}, code: "result = seen"}}
        """,
    ),
    Case(
        "parallel items in windows",
        "COMPLETED",
        """
        - step: start
          loop: {in: 150, iterator: n, spec: {mode: parallel, max_in_flight: 12}}
          tool: {kind: python, code: "import time; time.sleep(0.01); result = {'n': n, 'square': n * n}"}
          next: {arcs: [{step: check, when: "{{ event.name == 'loop.done' }}"}]}
        - {step: check, tool: {kind: python, input: {all: "{{ start.results }}"},
            code: "result = [len(all), sum(x['square'] for x in all)]"}}
        """,
    ),
    Case(
        "parallel items with a pipeline each",
        "COMPLETED",
        """
        - step: start
          loop: {in: "{{ range(40) | list }}", iterator: n, spec: {mode: parallel, max_in_flight: 40}}
          tool:
            - {name: one, kind: python, code: "result = {'a': n}", set: {iter.kept: "{{ output.a * 2 }}"}}
            - {name: two, kind: python, input: {k: "{{ iter.kept }}"}, code: "result = {'b': k + 1}"}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {all: "{{ start.results }}"},
            code: "result = [x['b'] for x in all]"}}
        """,
    ),
    Case(
        "a loop of playbooks that loop",
        "COMPLETED",
        """
        - step: start
          loop: {in: [3, 1, 4, 2, 5], iterator: size, spec: {mode: parallel, max_in_flight: 3}}
          tool:
            - {name: before, kind: python, code: "result = {'n': size + 1}"}
            - {name: sub, kind: playbook, path: kill/child, input: {n: "{{ before.n }}"}, return_step: last}
            - {name: after, kind: python, input: {s: "{{ sub.sum }}"}, code: "result = {'after': s}"}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {all: "{{ start.results }}"},
            code: "result = [x['after'] for x in all]"}}
        """,
    ),
    Case(
        "children of children, one after the other",
        "COMPLETED",
        """
        - step: start
          loop: {in: 3, iterator: k, spec: {mode: sequential}}
          tool: {kind: playbook, path: kill/parent_of_child, input: {n: "{{ k + 1 }}"}, return_step: last,
              spec: {policy: {rules: [{else: {do: continue,
              set: {ctx.t: "{{ (ctx.t or []) + [output.data.total] }}"}}}]}}}
          next: {arcs: [{step: check}]}
        - {step: check, tool: {kind: python, input: {t: "{{ ctx.t }}"}, code: "result = t"}}
        """,
    ),
    Case(
        "a loop entered again and again",
        "COMPLETED",
        """
        - step: start
          loop: {in: "{{ range((ctx.round | default(1)) * 3) | list }}", iterator: n,
              spec: {mode: parallel, max_in_flight: 2}}
          tool: {kind: python, code: "result = {'n': n}"}
          set: {ctx.round: "{{ (ctx.round | default(1)) + 1 }}", ctx.sizes: "{{ (ctx.sizes or []) + [output.count] }}"}
          next: {arcs: [{step: start, when: "{{ ctx.round <= 4 }}"}, {step: check}]}
        - {step: check, tool: {kind: python, input: {s: "{{ ctx.sizes }}"}, code: "result = s"}}
        """,
    ),
    Case(
        "an item that fails ends a sequential loop",
        "FAILED",
        """
        - step: start
          loop: {in: 12, iterator: n, spec: {mode: sequential}}
          tool: {kind: python, code: "import time; time.sleep(0.05); assert n != 9, 'not nine'; result = n"}
          next: {arcs: [{step: never, when: "{{ event.name == 'loop.done' }}"}]}
        - {step: never, tool: {kind: noop}}
        """,
    ),
    Case(
        "an item that fails and is handled",
        "COMPLETED",
        """
        - step: start
          loop: {in: 8, iterator: n, spec: {mode: sequential}}
          tool: {kind: python, code: "import time; time.sleep(0.05); assert n != 5, 'not five'; result = n"}
          next: {arcs: [{step: rescue, when: "{{ event.name == 'call.error' }}"}]}
        - {step: rescue, tool: {kind: python, input: {s: "{{ start.stats }}", r: "{{ start.results }}"},
            code: "result = [s, r]"}}
        """,
    ),
    Case(
        "large items and results by reference",
        "COMPLETED",
        """
        - {step: start, tool: {kind: python,
            code: "result = {'rows': [{'id': n, 'x': 'y' * 3000} for n in range(30)]}"}, next: {arcs: [{step: each}]}}
        - step: each
          loop: {in: "{{ start.rows }}", iterator: row, spec: {mode: parallel, max_in_flight: 4}}
          tool: {kind: python,
              code: "import time; time.sleep(0.05); result = {'id': row['id'], 'twice': row['x'] * 4}"}
          next: {arcs: [{step: check, when: "{{ each.results | length == 30 and each.results[29].id == 29 }}"}]}
        - {step: check, tool: {kind: python, input: {r: "{{ each }}"},
            code: "result = sum(len(x['twice']) for x in r['results'])"}}
        """,
    ),
]
FLOW = [
    Case(
        "branches that join, one of them not taken and one not admitted",
        "COMPLETED",
        """
        - step: start
          tool: {kind: noop}
          next: {spec: {mode: inclusive}, arcs: [{step: a}, {step: b}, {step: c, when: "{{ false }}"}, {step: gate}]}
        - {step: a, tool: {kind: python, code: "import time; time.sleep(0.3); result = 'a'"},
            next: {arcs: [{step: more}]}}
        - {step: more, tool: {kind: python, code: "import time; time.sleep(0.4); result = 'more'"},
            next: {arcs: [{step: join}]}}
        - {step: b, tool: {kind: python, code: "result = 'b'"}, next: {arcs: [{step: join}]}}
        - {step: c, tool: {kind: noop}, next: {arcs: [{step: join}]}}
        - step: gate
          spec: {policy: {admit: {rules: [{when: "{{ open }}", then: {allow: true}}, {else: {then: {allow: false}}}]}}}
          tool: {kind: noop}
          next: {arcs: [{step: join}]}
        - {step: join, tool: {kind: python, input: {x: ["{{ more }}", "{{ b }}", "{{ c is defined }}"]},
            code: "result = x"}}
        """,
        {"workload": {"open": False}},
    ),
    Case(
        "twenty branches that join",
        "COMPLETED",
        "- {step: start, tool: {kind: noop}, next: {spec: {mode: inclusive}, arcs: ["
        + ", ".join(f"{{step: s{n}}}" for n in range(20))
        + "]}}\n"
        + "".join(
            f"- {{step: s{n}, tool: {{kind: python, code: 'import time; time.sleep({n / 20}); result = {n}'}},"
            f" next: {{arcs: [{{step: join}}]}}}}\n"
            for n in range(20)
        )
        + "- {step: join, tool: {kind: python, input: {x: ["
        + ", ".join(f"'{{{{ s{n} }}}}'" for n in range(20))
        + "]}, code: 'result = sum(x)'}}\n",
    ),
    Case(
        "a cycle with a counter",
        "COMPLETED",
        """
        - {step: start, tool: {kind: python, input: {n: "{{ ctx.n | default(0) }}", old: "{{ start.seen }}"},
            code: "result = {'seen': (old or []) + [n]}"}, set: {ctx.n: "{{ (ctx.n | default(0)) + 1 }}"},
            next: {arcs: [{step: between, when: "{{ ctx.n < 20 }}"}, {step: check}]}}
        - {step: between, tool: {kind: noop}, next: {arcs: [{step: start}]}}
        - {step: check, tool: {kind: python, input: {seen: "{{ start.seen }}"}, code: "result = seen"}}
        """,
    ),
    Case(
        "variables set on arcs last",
        "COMPLETED",
        """
        - step: start
          tool: {kind: python, code: "result = {'n': 4, 'text': 'z' * 9000}"}
          next: {arcs: [{step: middle, set: {ctx.given: "{{ start.n }}", ctx.long: "{{ output.data.text }}"}}]}
        - {step: middle, tool: {kind: python, code: "import time; time.sleep(0.5); result = 1"},
            next: {arcs: [{step: check, set: {ctx.given: "{{ ctx.given + 1 }}"}}]}}
        - {step: check, tool: {kind: python, input: {x: "{{ ctx.given }}", long: "{{ ctx.long }}"},
            code: "result = [x, len(long)]"}}
        """,
    ),
    Case(
        "a failure that an arc handles",
        "COMPLETED",
        """
        - step: start
          tool: {kind: python, code: "import time; time.sleep(0.4); raise ValueError('broken pipe')"}
          next: {arcs: [{step: rescue, when: "{{ event.name == 'call.error' }}",
              set: {ctx.said: "{{ output.error.message }}"}}]}
        - {step: rescue, tool: {kind: python, input: {said: "{{ ctx.said }}"}, code: "result = said"}}
        """,
    ),
    Case(
        "a failure that nobody handles, beside a branch that still runs",
        "FAILED",
        """
        - step: start
          tool: {kind: noop}
          next: {spec: {mode: inclusive}, arcs: [{step: bad}, {step: good}]}
        - {step: bad, tool: {kind: python, code: "import time; time.sleep(0.1); raise ValueError('nobody helps')"}}
        - {step: good, tool: {kind: python, code: "import time; time.sleep(1.0); result = 'fine'"}}
        """,
    ),
    Case(
        "no arc matches where one must",
        "FAILED",
        """
        - {step: start, tool: {kind: noop}, next: {arcs: [{step: end, when: "{{ false }}"}]}}
        - {step: end, tool: {kind: noop}}
        """,
        {"executor": {"spec": {"no_next_is_error": True}}},
    ),
    Case(
        "an arc that cannot be evaluated",
        "FAILED",
        """
        - {step: start, tool: {kind: noop}, next: {arcs: [{step: middle}]}}
        - {step: middle, tool: {kind: noop}, next: {arcs: [{step: end, when: "{{ n + 1 > 2 }}"}]}}
        - {step: end, tool: {kind: noop}}
        """,
        {"workload": {"n": "text"}},
    ),
    Case(
        "a final step after a failure",
        "FAILED",
        """
        - {step: start, tool: {kind: python, code: "import time; time.sleep(0.3); raise KeyError('k')"},
            next: {arcs: [{step: end}]}}
        - {step: end, tool: {kind: noop}}
        - {step: finally, tool: {kind: python, code: "result = 'tidied'"}}
        """,
        {"executor": {"spec": {"final_step": "finally"}}},
    ),
]
LOOPS_AND_FLOW = [*LOOPS, *FLOW]
