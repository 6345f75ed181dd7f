"""What is asked: does a case fail as it did, or as a command, a function or a measurement decides?"""
