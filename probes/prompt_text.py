"""The prompt text that is measured by default: plain English, shuffled by a seed.

Repeated or random tokens mislead models that route tokens to experts, and tokenizers too; so the
default is text of the kind people send. Sentences are drawn without repetition until all have been
used, then in a new order: the same seed gives the same text on every machine.
"""

from __future__ import annotations

import random

_SUBJECTS = """
The night train to the coast
A careful reader of old maps
The committee on public gardens
My neighbour, who repairs clocks,
The second draft of the contract
A small team of surveyors
The baker at the corner
Every compiler that we tried
The river below the mill
An engineer from the water works
The youngest member of the choir
The report on harbour traffic
Our cheapest thermometer
The translator of the long poem
A retired teacher of chemistry
The new index of the library
The storm of the previous autumn
A pair of grey herons
The database behind the ticket office
The doctor on duty
One student in the back row
The letter from the tax office
The oldest orchard in the valley
A patient collector of stamps
The network between the two sites
The mayor's assistant
The museum's night guard
A recipe without any sugar
The last experiment of the series
The court's written opinion
A spreadsheet with four hundred rows
The orchestra's spare violin
""".strip().splitlines()

_VERBS = """
explains why
showed that
left no doubt that
was the first to suggest that
took three weeks to prove that
quietly assumes that
reminded everybody that
could not decide whether
kept a careful record of how
had to admit that
was written to show how
made it plain that
measured twice whether
forgot to mention that
asked in passing whether
changed its mind about why
""".strip().splitlines()

_CLAUSES = """
the bridge would hold another winter
bread rises faster near the window
a single figure hides two different causes
the price of copper follows the weather
most delays begin long before anybody notices them
the left bank floods earlier than the right
an answer is only as good as the question behind it
the old lamp uses more power than the heating
seventeen of the forty samples were mislabelled
memory is cheaper than patience
the garden needs shade more than water
half of the letters never reached the capital
two clocks in one house never agree
the shortest path is not the quickest one
the violin sounds warmer after an hour of playing
a cold engine tells you little about a warm one
the census missed the houses by the canal
sorting the cards first saves an afternoon
the second witness had never seen the first
salt, time and a low flame do most of the work
the proof fails for every odd number above nine
the harbour silted up in less than a decade
nobody had read the last page of the agreement
the birds return on almost the same day each year
a faster machine would only have waited longer
the colour fades in direct light
the survey counted each household twice
the tunnel was dug from both ends at once
the middle of the story was written last
a good index is worth a second edition
""".strip().splitlines()

_ENDINGS = """
, which surprised nobody
, at least on paper
, and the figures agree
, although the minutes say otherwise
, as the 1987 edition puts it
, so the work began again in March
 (see the table on page 42)
, and that settled the matter
 — a point to which we shall return
, despite a budget of only 1,250 crowns
, if the diary can be trusted
, and so it went on for years

""".removeprefix("\n").splitlines()
"""What may follow a clause; the last one is nothing."""


def prompt_text(seed: int, n_bytes: int) -> bytes:
    """At least `n_bytes` of UTF-8 text, the same for the same seed."""
    draw = random.Random(seed)
    sentences: list[str] = []
    size = 0
    while size < n_bytes:
        for subject in draw.sample(_SUBJECTS, len(_SUBJECTS)):
            words = f"{subject} {draw.choice(_VERBS)} {draw.choice(_CLAUSES)}{draw.choice(_ENDINGS)}."
            sentences.append(words + ("\n\n" if draw.random() < 0.15 else " "))
            size += len(sentences[-1].encode())
    return "".join(sentences).encode()
