"""Speech to text: a command on this machine, or a server with OpenAI's `/audio/transcriptions`, reads a recording.

The command runs confined in a new folder that holds the recording alone, because a recording may be made to harm the
program that reads it. The server's key is sent to `stt.base_url` and nowhere else; redirects are not followed. What a
server charges is counted against the spending limits before it is asked. Whatever goes wrong is one line for the
person (`NotHeard`); the recording is kept, and the turn goes on without its words.
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hermes_agent.budget import Budget
from hermes_agent.execution import script
from hermes_agent.execution.supervisor import remove_folder
from hermes_agent.models.base import is_own_machine
from hermes_agent.text import shortened
from hermes_config.errors import HermesError

if TYPE_CHECKING:
    from hermes_config.config import Config
    from hermes_state import SessionDB
    from hermes_state.ids import ConversationId, PersonId, SessionId

log = logging.getLogger("hermes.agent")
_LONGEST_CHARS = 20_000
_ANSWER_BYTES = 1 << 20
SET_UP = "no transcriber is set up (stt.command or stt.base_url)"


class NotHeard(HermesError):
    """The voice message could not be turned into text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceListener:
    """Who listens for one conversation, and who pays for it."""

    db: SessionDB
    config: Config
    conversation_id: ConversationId
    session_id: SessionId
    person_id: PersonId | None

    async def words(self, recording: Path) -> str:
        """The words of a recording. Raises `NotHeard`."""
        speech = self.config.stt
        if not speech.enabled or not (speech.command or speech.base_url):
            raise NotHeard(SET_UP if speech.enabled else "transcribing is switched off (stt.enabled)")
        try:
            async with asyncio.timeout(speech.timeout):
                heard = await (self._by_command(recording) if speech.command else self._by_server(recording))
        except TimeoutError:
            raise NotHeard(f"the transcriber did not answer within {speech.timeout:g} s") from None
        except HermesError as error:
            log.warning("a voice message was not transcribed: %s", error.what, extra={"action": "not_heard"})
            raise error if isinstance(error, NotHeard) else NotHeard(error.what, hint=error.hint) from error
        if not heard.strip():
            raise NotHeard("the transcriber heard no words")
        return shortened(" ".join(heard.split()), _LONGEST_CHARS)

    async def _by_command(self, recording: Path) -> str:
        folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="hermes-voice-"))
        try:
            copy = folder / f"voice{recording.suffix}"
            await asyncio.to_thread(shutil.copyfile, recording, copy)
            line = str(self.config.stt.command).replace("{file}", shlex.quote(copy.name))
            return await script.run(self.config, line, folder, seconds=self.config.stt.timeout, with_errors=False)
        except OSError as error:
            raise NotHeard(f"the recording cannot be read: {error.strerror}") from error
        except script.ScriptFailed as error:
            raise NotHeard(f"stt.command failed: {error.what}") from error
        finally:
            with suppress(OSError):
                await asyncio.to_thread(remove_folder, str(folder))

    async def _by_server(self, recording: Path) -> str:
        speech = self.config.stt
        usd = await self._paid()
        answer = await self._asked(recording)
        try:
            text = json.loads(answer).get("text")
        except (ValueError, AttributeError):
            text = None
        if not isinstance(text, str):
            raise NotHeard(f"the answer of {speech.base_url} has no text", hint="Is it the address that ends in /v1?")
        await asyncio.to_thread(
            self.db.record_auxiliary_usage, self.session_id, "transcription", model=speech.model,
            billing_base_url=speech.base_url, estimated_cost_usd=usd, counted=Budget(self.db, self.config).configured,
        )  # fmt: skip
        return text

    async def _paid(self) -> float:
        """Count the price of one message. Raises `ModelError` if it would exceed a limit."""
        speech = self.config.stt
        usd = speech.usd_per_message
        if usd is None and is_own_machine(str(speech.base_url)):
            usd = 0.0
        await Budget(self.db, self.config).spend(
            usd, what=f"a transcription by {speech.base_url}", setting="stt.usd_per_message", task="transcription",
            model=speech.model, conversation_id=self.conversation_id, person_id=self.person_id,
        )  # fmt: skip
        return usd or 0.0

    async def _asked(self, recording: Path) -> bytes:
        import httpx2

        speech = self.config.stt
        address = f"{str(speech.base_url).rstrip('/')}/audio/transcriptions"
        key = self.config.environ(speech.key_env)
        fields = {"model": speech.model, "response_format": "json"}
        if speech.language:
            fields["language"] = speech.language
        answer = bytearray()
        try:
            data = await asyncio.to_thread(recording.read_bytes)
            async with (
                httpx2.AsyncClient(timeout=speech.timeout, trust_env=not is_own_machine(address)) as client,
                client.stream(
                    "POST", address, data=fields, files={"file": (f"voice{recording.suffix}", data)},
                    headers={"Authorization": f"Bearer {key}"} if key else {},
                ) as response,
            ):  # fmt: skip
                if response.status_code != 200:
                    hint = f"Set {speech.key_env} in .env." if response.status_code == 401 else ""
                    raise NotHeard(f"{speech.base_url} answered HTTP {response.status_code}", hint=hint)
                async for piece in response.aiter_bytes():
                    answer += piece
                    if len(answer) > _ANSWER_BYTES:
                        raise NotHeard(f"the answer of {speech.base_url} is too long")
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise NotHeard(f"{speech.base_url} cannot be reached ({type(error).__name__})") from error
        except OSError as error:
            raise NotHeard(f"the recording cannot be read: {error.strerror}") from error
        return bytes(answer)
