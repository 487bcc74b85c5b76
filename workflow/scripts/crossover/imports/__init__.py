"""Result files of other load tools, read into the tables of a campaign.

`format` says what a format is, a module each fills it, and `files` finds the one that a file has;
it turns what is in it into `run.Run`s. `tables` makes rows of records.POINTS, SESSIONS and REQUESTS
of them, with the remarks of `arms`; `found` is the campaign that they amount to.
"""
