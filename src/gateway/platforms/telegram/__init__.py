"""Registers Telegram without importing its library. The adapter is `adapter.TelegramAdapter`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.platforms.registry import Field

if TYPE_CHECKING:
    from hermes_cli.plugins import PluginContext


def register(ctx: PluginContext) -> None:
    """Register the platform, as a plug-in does."""
    ctx.register_platform(
        "telegram",
        title="Telegram",
        adapter="gateway.platforms.telegram.adapter:TelegramAdapter",
        packages=("telegram", "markdown_it"),
        extra="telegram",
        means="edit",
        tool_lines="off",
        prompt_hint="You are talking in Telegram. Keep answers short; Markdown is rendered.",
        setup="hermes_cli.setup.telegram:steps",
        probe="gateway.platforms.telegram.setup:probe",
        setup_invitation="@BotFather there makes a bot (/newbot) and gives you its token.",
        fields=(
            Field(key="token", env="TELEGRAM_BOT_TOKEN", help="the token from @BotFather", required=True, secret=True),
            Field(key="allowed_users", env="TELEGRAM_ALLOWED_USERS", help="numeric user ids that may write, by commas"),
            Field(key="home_channel", env="TELEGRAM_HOME_CHANNEL", help="the chat for notices without an addressee"),
            Field(key="extra.base_url", help="a Bot API server of your own, such as http://127.0.0.1:8081/bot"),
            Field(key="extra.base_file_url", help="where it serves files, such as http://127.0.0.1:8081/file/bot"),
            Field(key="extra.local_mode", help="true when that server runs with --local on this machine"),
            Field(
                key="extra.require_mention",
                env="TELEGRAM_REQUIRE_MENTION",
                help="in groups listen only when named or replied to (default true)",
            ),
        ),
        setup_help=(
            "In Telegram, write /newbot to @BotFather and choose a name; it answers with a token like 1234567890:AA….\n"
            "Whoever has the token is the bot: it is kept in .env of your Hermes home and shown to nobody."
        ),
    )
