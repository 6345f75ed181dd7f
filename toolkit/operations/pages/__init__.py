"""The page of each kind of folder: a diagnosis, a case, a dump, a search over releases, or several.

`folder_page.py` chooses by the files of the folder. Everything is read, and nothing compiled: a
section whose data was not recorded names the command that records it.
"""
