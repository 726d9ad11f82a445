"""Publishing a dataset: what of its folder goes to the Hub, what forbids it, the card, and the one commit.

checks.py     everything that forbids it; contents.py one look at every part
features.py   the head of the card (`dataset_info`) out of the files
figures.py    the two figures of the card
files.py      the files that are published, and those of the repository that have to go
hub.py        the repository: one commit, one tag, again until it is whole
failures.py   what the Hub's client raises, as one line without the token
"""
