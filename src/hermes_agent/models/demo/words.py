"""The demo model's own texts: who it is, what it can do, and the long story."""

from __future__ import annotations

WHO = "I am the built-in demo model: scripted, not clever."

CAN = """\
- list the files here
- read README.md
- look for TODO in the files
- write hello to notes.txt
- run git status, or: run sleep 20 in the background
- remind me in 5 minutes to eat, or: every day at 8: list the files here
- compare tea and coffee (two helpers at once)
- remember that Ada is allergic to nuts
- search our chats for 京都
- delete the folder old (I will have to ask you)
- what is 6 * 7?
- what did I just say?
- tell me the long story (about a minute; a good moment to pull the plug)
- be slow 3, or: fail with 429, 500, disconnect, garbage (add "once" to see a retry), overflow"""

ABOUT = f"""\
{WHO} I run inside this process, know about thirty phrases, and nothing leaves this machine. Everything around me is \
real: the tools, the approvals, the stored conversation. A model that thinks: `hermes setup`.

You can say:

{CAN}"""

LOST = f"""\
{WHO} I do not understand that one. What I do understand:

{CAN}"""

HELLO = f"Hello! {WHO}\n\nTry: list the files here · remember that … · search our chats for … · what can you do?"

STORY = """\
# The conversation that would not be lost

Once, in a harbour town where the fog came in so thick that the gulls walked, there was a small post office with one \
counter, one lamp and one clerk. The clerk's name was Hermes. It was not his real name, but he was quick on his feet, \
and in that town a good nickname was kept longer than a good umbrella.

People came to the counter and talked. That was the whole business. They said a thing, and somebody far away said a \
thing back, and Hermes carried the words between them. He had one rule, which he had painted above the lamp in \
letters a hand high: *First write it down. Then say thank you.*

Visitors laughed at the rule. Surely it was quicker to say thank you first, and to write it down when the queue was \
short? "It is quicker," said Hermes. "It is also how my predecessor lost a proposal of marriage, two birthdays and a \
whale." Nobody ever learned what had happened with the whale. There was no record of it. That was rather his point.

One winter evening a woman named Ada came in, shook the fog out of her coat, and asked a long question. It was the \
kind of question that begins with a trip to Kyoto and ends, by way of nuts and allergies, at what a person owes to an \
old friend. Hermes wrote it down. He said thank you. He had just carried the first three words of the answer to the \
counter when the lamp went out.

It did not flicker first. It simply went out, the way a lamp does when somebody far down the line has pulled the wrong \
lever. In the dark there was a thump, as of a clerk falling off a stool, and then the particular silence of an office \
in which nobody is employed any more.

Ada waited. She counted to one.

The lamp came back. On the stool sat a clerk who looked exactly like Hermes and had never seen her before in his life. \
He did not apologise and he did not guess. He pulled the big ledger towards him, licked his thumb, and read the last \
page. *Question received from A.,* it said, *nineteen minutes past eight; thanked. Answer begun. Three words carried.*

"Ah," said the new clerk, "we were just talking." And he picked up the pen.

Now there are clerks, and you have met them, who would have started from the beginning and handed Ada the same three \
words again, so that she went home with six. There are others who would have decided that the answer had surely been \
delivered by somebody, and closed the window. The new clerk did neither. He took back the scrap with three words on \
it, smoothed it flat, and wrote the whole answer on that very scrap. Ada received one answer. She received it once.

"Does this happen often?" she asked.

"The lamp? Now and then," said the clerk. "The answer? Every time."

There was one matter he could not settle, and he told her so. In the ledger, between the question and the answer, it \
said: *Sent the boy to close the harbour gate.* And nothing after it. Had the boy gone? Had he closed it? The page did \
not say, and the boy was not the kind to be found. A hasty clerk would have sent a second boy, and there are gates \
which must not be closed twice, especially by two boys from different sides. So the clerk wrote underneath, in red: \
*Outcome unknown*, and he said to Ada: "I shall not send him again on my own. Look out of the window, would you?" She \
looked. The gate was closed. "Then that is what we know," said the clerk, and wrote it down.

Years went by, as they do in stories, in one sentence. The conversation between Ada and her friend grew long, longer \
than the counter, longer than the street. When it no longer fitted on the desk, the clerk wrote a summary of the \
oldest part, pinned it to the front, and carried the pages themselves to the cellar. He did not throw a single one \
away. Any evening you liked you could say, "Uncompress it, please," and he would go down with a lamp and bring them \
all up again in order, slightly out of breath.

Once two clerks appeared on the same stool, which ought to be impossible and happens to everybody. Both had pens. Both \
had dipped them. But the ledger had a little brass number on its cover, and every clerk was given the next number when \
he sat down, and the ledger took ink only from the highest. So the first clerk wrote a beautiful page on which nothing \
appeared, understood, put on his hat, and went home without a quarrel.

And once a stranger came in out of the fog, read the rule above the lamp, and said he would like to hear what Ada had \
been writing. "Are you on the list?" asked the clerk. He was not. The clerk wished him a good evening, and wrote down \
that he had wished it, and that was all the stranger ever learned in that town.

Ada is old now. The friend is old too. They have never met again since Kyoto, and they have never stopped talking; and \
if you stand by the counter at nineteen minutes past eight you may see her come in, shake the fog out of her coat, and \
begin in the middle of a sentence, without a hello, as one does with people who remember.

"Where were we?" she says.

And the clerk, whichever clerk it is that night, opens the ledger at the last page, and tells her.

*The end. It is also written down.*"""
