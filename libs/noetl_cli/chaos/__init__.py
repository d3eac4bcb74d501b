"""Black-box chaos: a mixed load on real processes, a seeded schedule of faults, and a judgement from outside.

`schedule` draws the faults, `inject` does them, `relay` is the wire that they cut, `load` draws the runs and what each
must come to, `drive` starts them, `ledger` is what the tools themselves write down, `judge` compares.
"""
