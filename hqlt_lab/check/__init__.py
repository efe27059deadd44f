"""The conformance kit: what every part must be able to show, the lab's own and yours.

hqlt check update_rule delta                  on the command line
lab.check_part("update_rule", "delta")        in Python, and in your own tests: .assert_passed()

kit          runs the checks of a kind and gathers a report
subject      the part under test, in compositions small enough to test exhaustively
report       what passed, what failed and why, what is illegal
alone        every document in a call of its own: what padding and packing are measured by
for_all / for_layouts / for_rules / for_timings / for_others     the checks themselves
"""
