"""Every statement that a runner and its handlers send, and every way in which it can go wrong there.

A workload is run once without faults, behind a proxy that writes down what is sent: those are the points. Then it is run
once for each point and each mode of `faults`, and afterwards an audit reads what the database itself has noted. Nobody
lists statements: one that is added later is a point as soon as the workload sends it.
"""
