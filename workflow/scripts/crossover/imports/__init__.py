"""Result files of other load tools, read into the tables of a campaign.

`files` finds the format of each file; a format's module turns what is in it into `run.Run`s;
`tables` makes rows of records.POINTS, SESSIONS and REQUESTS of them, with the remarks of `arms`;
`found` is the campaign that they amount to.
"""
