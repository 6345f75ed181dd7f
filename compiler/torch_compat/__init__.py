"""All uses of private torch names, by area of torch, each with its versions.

Everything else in ctk goes through the functions of these modules, so that a new torch is a
change of this package. What it does not do: no logic of ctk, and no import of anything heavy before
it is asked for.
"""
