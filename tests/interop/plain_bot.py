"""A gateway of forty lines on plain python-telegram-bot, to try scenarios with: answers what the model says.

It keeps its offset in the home and moves it before it answers, so that a kill loses an answer and never doubles one.
`--break` ends it at once with a word.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import httpx2
import telegram
import yaml


async def main() -> None:
    home = Path(os.environ["HERMES_HOME"])
    config = yaml.safe_load((home / "config.yaml").read_text())
    secrets = dict(line.split("=", 1) for line in (home / ".env").read_text().splitlines())
    allowed = {int(number) for number in secrets["TELEGRAM_ALLOWED_USERS"].split(",") if number}
    place, model = config["platforms"]["telegram"]["extra"], config["model"]
    kept = home / "offset"
    offset = int(kept.read_text()) if kept.exists() else 0
    bot = telegram.Bot(secrets["TELEGRAM_BOT_TOKEN"], base_url=place["base_url"], base_file_url=place["base_file_url"])
    async with bot, httpx2.AsyncClient(trust_env=False) as http:
        while True:
            for update in await bot.get_updates(offset=offset, timeout=10):
                offset = update.update_id + 1
                kept.write_text(str(offset))
                message = update.message
                if message is None or message.from_user is None or message.from_user.id not in allowed:
                    continue
                body = {
                    "model": model["default"],
                    "stream": False,
                    "messages": [{"role": "user", "content": message.text}],
                }
                headers = {"authorization": f"Bearer {model['api_key']}"}
                answer = await http.post(f"{model['base_url']}/chat/completions", json=body, headers=headers)
                await bot.send_message(message.chat_id, answer.json()["choices"][0]["message"]["content"])


if "--break" in sys.argv:
    sys.exit("the configuration is no good")
asyncio.run(main())
