"""All uses of private torch names, by area of torch.

All other code of ctk goes through the functions of these modules, so that a new torch is a change
of this package. It has no logic of ctk, and imports heavy modules only on demand.
`docs/torch-interface/` lists the names with their signatures in each release; a difference between
releases is in one function, whose docstring names them. A name is looked up in the function that
needs it, so that a release without it refuses that feature only.
"""
