"""Tools of our own tests that plug-in authors do not need; what they need is in `hermes_testing`.

Start with `stores` (throw-away databases on both engines), `gateways` (a gateway in this process), `terminal` (a person
at a terminal), `processes` (children to kill), `storm` and `history` (a gateway under load, and the checker of what it
did), `sweep` and `kill_points` (SIGKILL at every instant of a workload), `store_model` (what a store should do, in
plain Python) or `web` (sites and search engines on loopback).
"""
