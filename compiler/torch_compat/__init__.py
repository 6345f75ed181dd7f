"""All uses of private torch names, by area of torch, each with its versions.

All other code of ctk goes through the functions of these modules, so that a new torch is a change
of this package. It has no logic of ctk, and imports heavy modules only on demand.
"""
