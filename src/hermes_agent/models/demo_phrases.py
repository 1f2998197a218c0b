"""The phrases the demo model understands, in the order in which they are tried: what is meant, and how people say it.

A phrase is matched at the beginning, whatever its case, after "please" and its kin. `what` is the part that matters.
"""

from __future__ import annotations

import re

from hermes_agent.models.demo.words import GREETINGS

_PLEASE = r"(?:(?:please|bitte|can you|could you|kannst du|now)[,\s]+)*"
_END = r"(?:,? (?:please|bitte|por favor))?\s*[?!.]*$"
_WORD = r"[^\s?!]"
_QUOTED = r"[\"'`“].+[\"'`”]"
_TIMES = r"once|twice|\d{1,3} times"
_FILES = r"(?:the |our |these |all |my )?files"
_THING = r"folder|directory|file|ordner|verzeichnis|datei|dossier|fichier|carpeta|archivo"

_SECONDS = r"(?P<seconds>\d+(?:\.\d+)?)?\s*(?:seconds?|secs?|s)?\b"
_FAULT = r"(?P<what>[45]\d\d|disconnect\w*|hang\w*|garbage|empty|overflow)"
_CHATS = r"(?:chats?|conversations?|history|sessions?)"
_REMEMBER = r"(?:remember|note|keep in mind|memori[sz]e|don't forget|do not forget)\b"
_DELETE = (
    r"(?:delete|remove|erase|lösche?|entferne|supprime[rz]?|borra|elimina)\s+(?:the |den |die |das |le |la |el |my )?"
)
_READ = r"(?:read|open|cat|lies|lis|lee|leggi)\s+(?:me )?(?:the file |die datei |le fichier |el archivo )?"
_INTO = r"(?:to|into|in)\s+(?:the file |a file (?:called |named )?)?"
_LIST = r"(?:list|show|see|display|what|which)\b.*\b(?:files|folders?|directory)\b"
_FOLDER = r"(?P<what>[\w./~-]*[\w/~])"

PHRASES: tuple[tuple[str, str], ...] = (
    ("slow", rf"be slow(?:er)?(?: for)?\s*{_SECONDS}[\s,:]*(?:and |then )?(?P<what>.*)"),
    ("fail", rf"fail(?:\s+(?P<before>{_TIMES}))?(?:\s+with)?(?:\s+an?)?\s+{_FAULT}(?:\s+(?P<after>{_TIMES}))?{_END}"),
    ("steps", r"(?:take|do|make) (?P<what>\d{1,4}) steps?\b"),
    ("about", rf"(?:what|who) are you{_END}"),
    ("about", rf"(?:help|hilfe|aide|ayuda){_END}"),
    ("about", r"what can (?:you|i) (?:do|say)"),
    ("about", r"was kannst du|wer bist du|que sais-tu faire|qui es-tu|qué puedes hacer|quién eres|何ができ|你能做什么"),
    ("just said", r"what did i (?:just )?(?:say|ask|write|tell)"),
    ("just said", r"what was my (?:last|first) (?:message|question)"),
    ("just said", r"was habe ich (?:gerade|eben|zuerst)|qu'est-ce que j'ai dit|qué (?:acabo de decir|dije)"),
    ("search", rf"(?:search|look|find|check)\b[^:]*?\b{_CHATS}\b\s*(?:for|about|with|:)?\s*(?P<what>.+)"),
    ("search", r"(?:did we (?:ever )?(?:talk|speak|chat)|what did we say|when did we talk) about (?P<what>.+)"),
    ("search", r"(?:durchsuche?|suche?)\b.*?\b(?:chats?|gespräche?n?|verlauf)\b\s*(?:nach)?\s*(?P<what>.+)"),
    ("search", r"cherche[rz]? (?:dans )?nos (?:chats|conversations)\s*(?P<what>.+)"),
    ("search", r"busca en nuestr[oa]s (?:chats|conversaciones)\s*(?P<what>.+)"),
    ("look", rf"(?:look|search|grep|find)(?: for)? (?P<what>.+?) in {_FILES}{_END}"),
    ("look", rf"(?:search|look (?:in|through)|grep) {_FILES} for (?P<what>.+?){_END}"),
    ("look", rf"grep (?P<what>.+?){_END}"),
    ("list", rf"{_LIST}.*\b(?:in|of) (?:the )?(?:folder |directory )?{_FOLDER}{_END}"),
    ("list", _LIST),
    ("list", rf"(?:list|ls|dir)(?: {_FOLDER})?{_END}"),
    ("list", rf"what(?:'s| is) (?:in )?here{_END}"),
    ("list", r"(?:liste?|zeige?|welche)\b.*\bdateien\b|(?:liste|montre|quels)\b.*\bfichiers\b"),
    ("list", r"(?:lista|muestra|qué)\b.*\b(?:archivos|ficheros)\b|elenca\b.*\bfile\b"),
    ("list", r".*ファイル.*(?:一覧|リスト|見せ)|(?:列出|显示).*文件"),
    ("remember", rf"{_REMEMBER}(?:\s+that\b)?[\s:,]+(?P<what>.+)"),
    ("remember", r"(?:merke? dir|notiere?|vergiss nicht)\b[\s:,]+(?:dass\s+)?(?P<what>.+)"),
    ("remember", r"(?:souviens-toi|rappelle-toi|retiens|recuerda|ricorda(?:ti)?)\s+(?:que\s+|qu'|che\s+)?(?P<what>.+)"),
    ("remember", r"(?P<what>.+?)(?:を|と|って)?覚えて"),
    ("remember", r"(?:请)?记住[，,：:]?\s*(?P<what>.+)"),
    ("forget", r"(?:forget|vergiss)\b(?:\s+(?:that|dass)\b)?[\s:,]+(?P<what>.+)"),
    ("delete", rf"{_DELETE}(?P<kind>(?:{_THING})\s+)(?:called |named )?(?P<what>{_QUOTED}|{_WORD}+?){_END}"),
    ("delete", rf"{_DELETE}(?P<what>{_QUOTED}|{_WORD}+?)(?P<kind>\s+(?:{_THING}))?{_END}"),
    ("story", r"(?:tell|read|give)\b.*\b(?:story|tale)\b"),
    ("story", r"(?:erzähle?|raconte|cuenta|cuéntame|racconta)\b.*\b(?:geschichte|histoire|cuento|historia|storia)\b"),
    ("story", r".*(?:物語|お話).*(?:話|聞かせ|して)|.*[讲说].*故事"),
    ("ask", r"ask me\b|frage? mich\b"),
    ("run", r"(?:run|execute)(?: the command)?\s+(?P<what>.+)"),
    ("write", rf"(?:write|put|save)\s+(?P<text>.+?)\s+{_INTO}(?P<what>{_WORD}+?){_END}"),
    ("read", rf"{_READ}(?P<what>{_QUOTED}|{_WORD}+?){_END}"),
    ("read", rf"(?:show|zeige?)\s+(?:me |mir )?(?:the file )?(?P<what>{_WORD}+\.\w+){_END}"),
    ("thanks", r"(?:thanks?|thank you|danke|merci|gracias|grazie|obrigad[oa]|спасибо)\b|ありがとう|谢谢"),
)  # fmt: skip


def find(said: str) -> tuple[str, re.Match[str]] | None:
    """What is meant, and the match; None when nothing fits."""
    for name, pattern in PHRASES:
        # Compiled by `re` when it is first tried, and kept there: most conversations need a handful.
        if found := re.match(f"{_PLEASE}(?:{pattern})", said, re.IGNORECASE):
            return name, found
    return None


def greeting(said: str) -> tuple[str, str] | None:
    """The greeting back, and who I am, in the language somebody greets in."""
    if len(said) > 40:
        return None
    for words, answer in GREETINGS.items():
        if re.fullmatch(rf"(?:{words})(?:[\s,]+(?:hermes|there|all|zusammen))?[\s,!.？！。]*", said, re.IGNORECASE):
            return answer
    return None
