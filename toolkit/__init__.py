"""Everything around a compile: watch, judge, bisect, reduce, report. Its face is `ctk`."""
