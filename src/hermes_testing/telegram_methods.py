"""The bot's other methods (itself, chats, files, buttons, reactions, commands, webhooks), and the table of all.

`BotMethods.call` performs one request and gives its `result`, or raises the `BotApiError` that Telegram would answer
with. `getUpdates` waits and therefore lives with the server. Parameters nobody knows are ignored, names of methods
are not case sensitive, as with the real one. A webhook is remembered and blocks `getUpdates`; nothing is ever posted
to it.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hermes_testing.telegram_answers import NO_SUCH_METHOD, Json, bad_request
from hermes_testing.telegram_chats import Chat, World
from hermes_testing.telegram_entities import units
from hermes_testing.telegram_flood import FloodControl
from hermes_testing.telegram_parameters import Parameters
from hermes_testing.telegram_sending import Sending

DOWNLOAD_BYTES = 20 * 1024 * 1024
PRESS_SECONDS = 60.0
"""How long a button press can be answered. Telegram does not say; it is some seconds to a minute."""
_TOO_OLD = "query is too old and response timeout expired or query ID is invalid"
_REACTIONS = frozenset(
    "👍👎❤🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝✍🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾🤷😡"
)


class BotMethods:
    """Every method but `getUpdates`, by its name in lower case."""

    def __init__(self, world: World, flood: FloodControl) -> None:
        self._world = world
        self.sending = Sending(world, flood)
        self.methods: dict[str, Callable[[Parameters], object]] = {
            **self.sending.methods,
            "getme": self.get_me,
            "getchat": self.get_chat,
            "getchatmember": self.get_chat_member,
            "getfile": self.get_file,
            "answercallbackquery": self.answer_callback_query,
            "setmessagereaction": self.set_message_reaction,
            "setmycommands": self.set_my_commands,
            "getmycommands": self.get_my_commands,
            "deletemycommands": self.delete_my_commands,
            "setwebhook": self.set_webhook,
            "deletewebhook": self.delete_webhook,
            "getwebhookinfo": self.get_webhook_info,
        }

    def call(self, name: str, parameters: Parameters) -> object:
        method = self.methods.get(name.lower())
        if method is None:
            raise NO_SUCH_METHOD
        with self._world.lock:
            return method(parameters)

    # -- who and where ---------------------------------------------------------------------------------------------

    def get_me(self, _parameters: Parameters) -> Json:
        abilities = {
            "can_join_groups": True,
            "can_read_all_group_messages": self._world.reads_all_group_messages,
            "supports_inline_queries": False,
        }
        return self._world.bot.json() | abilities

    def get_chat(self, parameters: Parameters) -> Json:
        chat = self.sending.known_chat(parameters)
        more: Json = {"accent_color_id": 0, "max_reaction_count": 11, "accepted_gift_types": _NO_GIFTS}
        if chat.type != "private":
            more["permissions"] = {"can_send_messages": True}
        return self._world.chat_json(chat) | more

    def get_chat_member(self, parameters: Parameters) -> Json:
        chat = self.sending.known_chat(parameters)
        user = self._world.users.get(parameters.integer("user_id"))
        if user is None:
            raise bad_request("invalid user_id specified" if not parameters.text("user_id") else "user not found")
        return {"user": user.json(), "status": self._status(chat, user.id)}

    def _status(self, chat: Chat, user_id: int) -> str:
        if user_id == self._world.bot.id:
            return "member" if chat.bot_status == "administrator" else chat.bot_status
        if user_id in (chat.id, *chat.members):
            return "member"
        return "left"

    # -- files -----------------------------------------------------------------------------------------------------

    def get_file(self, parameters: Parameters) -> Json:
        named = parameters.text("file_id")
        if not named:
            raise bad_request("file_id not specified")
        file = self._world.files.get(named)
        if file is None:
            raise bad_request("wrong file_id or the file is temporarily unavailable")
        if file.size > DOWNLOAD_BYTES:
            raise bad_request("file is too big")
        told = {"file_size": file.size} if file.sized else {}
        return {"file_id": file.id, "file_unique_id": f"u{file.id}", "file_path": file.path, **told}

    # -- buttons and reactions -------------------------------------------------------------------------------------

    def answer_callback_query(self, parameters: Parameters) -> bool:
        text = parameters.text("text")
        press = self._world.presses.get(parameters.text("callback_query_id"))
        if press is None or press.answered or self._world.now() - press.at > PRESS_SECONDS:
            raise bad_request(_TOO_OLD)
        if units(text) > 200:
            raise bad_request("MESSAGE_TOO_LONG")
        press.answered = True
        chat = self._world.chats[press.chat_id]
        if text:
            toast = {"text": text, "alert": parameters.flag("show_alert"), "message": press.message_id}
            chat.toasts.append(toast | {"for": press.user_id, "at": self._world.now()})
        self._world.changed(chat)
        return True

    def set_message_reaction(self, parameters: Parameters) -> bool:
        listed = parameters.parsed("reaction", "reaction") or []
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise bad_request("can't parse reaction types JSON object")
        chat = self.sending.writable_chat(parameters)
        message = self._world.message(chat, parameters.integer("message_id"), "message to react not found")
        if len(listed) > 1:
            raise bad_request("REACTIONS_TOO_MANY")
        for one in listed:
            if one.get("type") != "emoji" or one.get("emoji") not in _REACTIONS:
                raise bad_request("REACTION_INVALID")
        if listed:
            message.reactions[self._world.bot.id] = listed[0]["emoji"]
        else:
            message.reactions.pop(self._world.bot.id, None)
        self._world.changed(chat)
        return True

    # -- commands --------------------------------------------------------------------------------------------------

    def set_my_commands(self, parameters: Parameters) -> bool:
        listed = parameters.parsed("commands", "commands") or []
        if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
            raise bad_request("expected an Array of BotCommand")
        if len(listed) > 100:
            raise bad_request("BOT_COMMANDS_TOO_MUCH")
        for one in listed:
            if not re.fullmatch(r"/?[a-z0-9_]{1,32}", str(one.get("command", ""))):
                raise bad_request("BOT_COMMAND_INVALID")
            if not 1 <= units(str(one.get("description", ""))) <= 256:
                raise bad_request("BOT_COMMAND_DESCRIPTION_INVALID")
        self._world.commands[_scope(parameters)] = [
            {"command": one["command"].removeprefix("/"), "description": one["description"]} for one in listed
        ]
        return True

    def get_my_commands(self, parameters: Parameters) -> list[Json]:
        return self._world.commands.get(_scope(parameters), [])

    def delete_my_commands(self, parameters: Parameters) -> bool:
        self._world.commands.pop(_scope(parameters), None)
        return True

    # -- webhooks --------------------------------------------------------------------------------------------------

    def set_webhook(self, parameters: Parameters) -> bool:
        url = parameters.text("url")
        if url and not url.startswith("https://"):
            raise bad_request("bad webhook: An HTTPS URL must be provided for webhook")
        if parameters.flag("drop_pending_updates"):
            self._world.updates.drop()
        self._world.webhook = {"url": url} if url else {}
        self._world.bell.ring()
        return True

    def delete_webhook(self, parameters: Parameters) -> bool:
        return self.set_webhook(Parameters({"drop_pending_updates": parameters.text("drop_pending_updates")}))

    def get_webhook_info(self, _parameters: Parameters) -> Json:
        return {
            "url": self._world.webhook.get("url", ""),
            "has_custom_certificate": False,
            "pending_update_count": len(self._world.updates.pending),
        }


_NO_GIFTS = {
    "unlimited_gifts": False, "limited_gifts": False, "unique_gifts": False, "premium_subscription": False,
    "gifts_from_channels": False,
}  # fmt: skip


def _scope(parameters: Parameters) -> str:
    return f"{parameters.text('scope')} {parameters.text('language_code')}"
