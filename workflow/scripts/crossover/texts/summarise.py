"""Text `summarise`: a report of about 250 words, and what to take from it.

Answers repeat names, dates and phrases of the report, which is what n-gram speculation drafts from.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

PEOPLE = (
    *("Amara Okafor", "Benno Lindqvist", "Carla Jimenez", "David Ashworth", "Elif Demir"),
    *("Farid Nasser", "Greta Holm", "Hiro Tanaka", "Ines Moreau", "Jakub Nowak"),
    *("Leila Haddad", "Marta Kowalska", "Nils Bergman", "Olivia Grant", "Paolo Ricci"),
)
TOWNS = (
    *("Ashford", "Brennau", "Calverton", "Dunmore", "Eastbridge", "Fallbrook", "Glenhaven"),
    *("Harwick", "Kingsmere", "Lindenau", "Marlow", "Northfield", "Oakham", "Ravensburg"),
)
MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)


@dataclass(frozen=True)
class Report:
    """A kind of report: its title, its paragraphs, and what fills their gaps."""

    title: str
    paragraphs: tuple[str, ...]
    words: dict[str, tuple[str, ...]]


REPORTS = (
    Report(
        "Report on the failure of {thing} in {town}",
        (
            "On {day} {month} at {hour}:{minute}, {thing} in {town} failed. {first}, who was on "
            "duty, first took it for {guess} and waited for {short} minutes before calling "
            "{second}. By then {many} households had noticed. The failure lasted {long} minutes "
            "in all and ended when {second} had {repair}.",
            "The cause was {cause}. It had been seen during the inspection in {earlier}, written "
            "down as harmless, and not looked at again. {third} points out that the instruction "
            "for such cases names {thing} in one sentence only and does not say who decides.",
            "Nobody was hurt. The cost is {cost} euros, most of it for overtime. {many} "
            "households were told by letter, and {few} of them have asked for compensation, which "
            "the town of {town} will decide on before the end of the year.",
            "Three things follow. {first} will write a new instruction that says after how many "
            "minutes a colleague is to be called. {second} will have the inspection repeated at "
            "the {few} other places of the same kind. {third} will report to the council of "
            "{town} on {cause} and on what a replacement would cost.",
        ),
        {
            "thing": (
                *("the pumping station", "the tram line", "the district heating plant"),
                *("the swing bridge", "the telephone exchange", "the signal box"),
            ),
            "guess": ("a false alarm", "a planned test", "a fault in the display"),
            "repair": (
                *("replaced a fuse", "switched to the reserve line", "closed a valve by hand"),
                "restarted the controls",
            ),
            "cause": (
                *("a worn bearing", "water in a cable duct", "a loose contact", "a blocked filter"),
                "a clock that was an hour slow",
            ),
        },
    ),
    Report(
        "Minutes of the meeting of the {club} in {town}",
        (
            "The {club} met in {town} on {day} {month} with {present} members present; {first} was in "
            "the chair and {second} kept the minutes. The minutes of the meeting in {earlier} "
            "were accepted without a change.",
            "{third} presented the accounts. There are {cost} euros in the bank, {many} less than "
            "a year ago, mainly because of {expense}. {second} asked whether {expense} could be "
            "shared with a neighbouring town. {third} will ask and report at the next meeting.",
            "The longest discussion was on {topic}. {first} was in favour, since {few} members had "
            "asked for it in {earlier}. {second} warned that {topic} would bind most of the "
            "volunteers for {short} weeks. After {long} minutes the vote was {short} to {few} in "
            "favour, on the condition that the cost stays below {many} euros.",
            "{second} will look after {topic}, beginning on the first Saturday in {later}. {third} "
            "writes to the members who were not present. The next meeting begins at "
            "{hour}:{minute} in the same room; {first} brings the key.",
        ),
        {
            "club": (
                *("choral society", "allotment association", "rowing club", "history society"),
                *("chess club", "volunteer fire brigade"),
            ),
            "expense": (
                *("the new roof", "the insurance", "the rent of the hall", "the repair of a van"),
                "the printing of the yearbook",
            ),
            "topic": (
                *("an open day", "a summer camp for children", "a second training evening"),
                *("a partnership with a school", "the exhibition in the town hall"),
            ),
        },
    ),
    Report(
        "What {many} visitors say of the {place} in {town}",
        (
            "Between {earlier} and {month}, {first} asked {many} visitors of the {place} in {town} "
            "what they liked and what they missed. {few} of a hundred came for the first time. On "
            "average they stayed {long} minutes, which is {short} minutes longer than a year ago.",
            'Most praise went to {praised}. "I would come back for {praised} alone," said one '
            "visitor from {town}, and {second}, who works at the entrance, hears the same nearly "
            "every day. Families also liked that the {place} opens at {hour}:{minute}.",
            "Most complaints were about {missed}. {few} of a hundred visitors mentioned it without "
            "being asked. {third} had proposed to change {missed} in {earlier}, but the {cost} "
            "euros were not in the budget. Some visitors also found the signs hard to read.",
            "{first} recommends to begin with the signs, since they cost little, and to put {missed} "
            "into the budget of next year. {second} would rather extend {praised}. {third} will "
            "decide on {day} {later}, when the figures of the whole season are known.",
        ),
        {
            "place": (
                *("botanical garden", "railway museum", "open-air pool", "city library"),
                *("observatory", "castle"),
            ),
            "praised": (
                *(
                    "the guided tours",
                    "the quiet reading room",
                    "the café",
                    "the workshop for children",
                ),
                "the view from the tower",
            ),
            "missed": (
                *("the parking space", "the queue at the ticket desk", "the old lift"),
                *("the closed toilets", "the short opening hours in winter"),
            ),
        },
    ),
)
QUESTIONS = (
    "Summarise the report in {n} sentences. Keep all names and figures as they are.",
    "List every decision and who is responsible for it, in the words of the report.",
    "Write {n} headings for the report, and under each the sentence that matters most, unchanged.",
    "Give the dates, times and sums of money of the report, each with the phrase it stands in.",
    "Shorten the report to half its length by leaving out whole sentences; change no other word.",
)


def prompts(draw: random.Random) -> Iterator[str]:
    """Without end, the kinds of report and question evenly mixed."""
    kinds = [(report, question) for report in REPORTS for question in QUESTIONS]
    while True:
        draw.shuffle(kinds)
        for report, question in kinds:
            gaps = _drawn(report, draw)
            text = "\n\n".join(paragraph.format(**gaps) for paragraph in report.paragraphs)
            asked = question.format(n=draw.randrange(3, 6))
            yield f"{asked}\n\n# {report.title.format(**gaps)}\n\n{text}"


def _drawn(report: Report, draw: random.Random) -> dict[str, str]:
    first, second, third = draw.sample(PEOPLE, 3)
    earlier, month, later = (MONTHS[number] for number in sorted(draw.sample(range(12), 3)))
    numbers = {
        "day": draw.randrange(1, 29),
        "hour": draw.randrange(7, 12),
        "minute": draw.choice((15, 30, 45)),
        "present": draw.randrange(22, 30),
        "short": draw.randrange(8, 15),
        "few": draw.randrange(3, 8),
        "long": draw.randrange(35, 90),
        "many": draw.randrange(110, 990, 10),
        "cost": f"{draw.randrange(2, 60)},{draw.randrange(100, 1000, 50)}",
    }
    return {
        "first": first,
        "second": second,
        "third": third,
        "town": draw.choice(TOWNS),
        "earlier": earlier,
        "month": month,
        "later": later,
        **{name: str(number) for name, number in numbers.items()},
        **{gap: draw.choice(words) for gap, words in report.words.items()},
    }
