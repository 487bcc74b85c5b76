"""Text `chat`: one question to an assistant, as a person would type it. 20 to 60 words.

Who asks, what about, and in which form the answer is wanted are drawn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

ASKERS = (
    "I teach a class of twelve-year-olds",
    "I have just moved to another country",
    "I am writing a column for a local newspaper",
    "I look after my grandparents at the weekend",
    "I have started to work from home",
    "I run a small shop with two friends",
    "I am preparing for an oral exam",
    "I have been asked to give a short talk",
    "I want to settle a bet with my brother",
    "I volunteer at the public library",
    "I share a flat with three students",
    "I am planning my first long bicycle tour",
)
EXPLAINED = (
    *("why the sky turns red in the evening", "how a refrigerator makes things cold"),
    *("why bread dough has to rest", "how a lock on a canal lifts a boat"),
    *("why some metals rust and others do not", "how an election by ranked votes works"),
    *("why we have leap years", "how noise-cancelling headphones work"),
    *("why the sea is salty and rivers are not", "how a vaccine prepares the body"),
    *("why paper money is worth anything", "how birds find their way in autumn"),
    *("why airplanes leave white trails", "how a touch screen feels a finger"),
    *("why old books smell the way they do", "how interest on a loan adds up"),
    *("why cats purr", "how a dictionary decides which words to add"),
    *("why onions make us cry", "how time zones were agreed on"),
)
PLANNED = (
    *("a farewell party for a colleague", "a weekend in the mountains without a car"),
    *("a week of dinners that take half an hour", "a vegetable bed on a north-facing balcony"),
    *("the move of an office of nine people", "a quiz night for forty guests"),
    *("a reading list on the history of the city", "a first visit to the opera"),
    *("a training plan for a run of ten kilometres", "a repair day in the neighbourhood"),
    *("a surprise breakfast for six", "the first month with a puppy"),
    *("a film evening with subtitles for everybody", "a tidy cellar before winter"),
)
WRITTEN = (
    *("a letter that declines an invitation", "a note to neighbours about a noisy evening"),
    *("a complaint about a parcel that came twice", "a toast for a wedding in the garden"),
    *("an advertisement for a used piano", "a message that asks for a day off"),
    *("a poem about the first day of snow", "a review of a restaurant that has improved"),
    *("an apology for a forgotten birthday", "the opening of a story set on a night train"),
    *("a label for a jar of plum jam", "a reminder to pay for the club's excursion"),
)
FORMS = (
    "Keep it under {n} sentences.",
    "Give me {n} points in the order of importance.",
    "Use plain words and one example from daily life.",
    "Begin with the answer and give the reasons after it.",
    "Do not assume that I know any technical terms.",
    "Mention one common mistake and how to avoid it.",
    "Write it as a conversation between two people.",
    "End with {n} questions that I should ask myself.",
    "Suggest a cheaper and a more careful way.",
    "A friendly tone, please, but no jokes.",
)
QUESTIONS = (
    ("Can you explain {topic}?", EXPLAINED),
    ("I was asked {topic} and had no good answer. What would you say?", EXPLAINED),
    ("My friends give me different reasons when I ask {topic}. Which is right?", EXPLAINED),
    ("Help me plan {topic}.", PLANNED),
    ("What should I think of first for {topic}, and what can wait?", PLANNED),
    ("We have {euros} euros for {topic}. How would you spend them?", PLANNED),
    ("Please write {topic}.", WRITTEN),
    ("I need {topic} by tomorrow and do not know how to begin. Please draft it.", WRITTEN),
)


def prompts(draw: random.Random) -> Iterator[str]:
    """Without end, the kinds of question evenly mixed."""
    questions = list(QUESTIONS)
    while True:
        draw.shuffle(questions)
        for question, topics in questions:
            asked = question.format(topic=draw.choice(topics), euros=draw.randrange(20, 500, 5))
            first, second = (form.format(n=draw.randrange(3, 9)) for form in draw.sample(FORMS, 2))
            yield f"{draw.choice(ASKERS)}. {asked} {first} {second}"
