"""`hermes setup`: sets up a working assistant with a few questions.

The questions: model, its key, a platform, approvals, a daily spending limit; a server of your own adds its address. A
key is sent only to the host that its question names. It is tested first and then stored only in `.env`. Each question
shows the current value, and Enter keeps it, so a second run changes only the new answers. Every question has an option;
`--non-interactive` asks nothing. An invalid answer is asked for again; Ctrl-C keeps the earlier answers. If the
configuration does not load, set-up offers to repair it first.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path

from gateway.config import load_gateway_config
from gateway.platforms import registry
from hermes_agent import budget
from hermes_agent.models import providers
from hermes_agent.models.base import ModelError, is_own_machine
from hermes_agent.web import backends
from hermes_cli.framework import prompts, text
from hermes_cli.framework.parser import Parser
from hermes_cli.maintenance import config_repair
from hermes_cli.setup import model, platform
from hermes_cli.setup.model import PresentModel, SetupChoice
from hermes_config import config, redaction
from hermes_config.errors import HermesError, UsageError
from hermes_config.home import ensure_home, hermes_home

_PROVIDERS = ("openrouter", "anthropic", "openai", "gemini")
_ATTEMPTS = 3
_MODELS_SHOWN = 15


def register(parser: Parser) -> None:
    parser.add_examples(
        "", "--non-interactive      use the first model server found on this machine",
        "--non-interactive --provider openai --key - < key.txt",
        "--non-interactive --base-url http://127.0.0.1:9000/v1 --model mine",
    )  # fmt: skip
    parser.add_argument("--non-interactive", action="store_true", help="ask nothing; keep settings that are not given")
    parser.add_argument("-m", "--model", metavar="NAME", help="the model, such as gpt-5 or ollama/llama3")
    parser.add_argument("--provider", metavar="NAME", help="the provider of the model")
    parser.add_argument("--base-url", metavar="URL", help="the address of your own model server")
    parser.add_argument("--key", metavar="WHERE", help=f"the key of the model: {prompts.SECRET_FROM}")
    parser.add_argument("--no-test", action="store_true", help="do not test the model with a question")
    parser.add_argument("--platform", metavar="NAME", help="connect this platform, such as {platform}")
    parser.add_argument("--token", metavar="WHERE", help=f"the token of the platform: {prompts.SECRET_FROM}")
    parser.add_argument("--owner", metavar="ID", help="your id on the platform")
    parser.add_argument(
        "--approvals",
        choices=("manual", "off"),
        help="manual: ask before risky actions; off: never ask, and refuse what would leave the sandbox",
    )
    parser.add_argument("--budget-day", metavar="USD", help="daily limit for all people together; none: no limit")
    parser.set_defaults(run=_setup)


def before_talking() -> None:
    """Run set-up before a chat when no model is configured."""
    ensure_home()  # so that an error about the home is reported alone
    print("No model is set up yet: a few questions first. hermes --model demo skips them.")
    parser = Parser(prog="hermes setup")
    register(parser)
    _setup(parser.parse_args([]))


def _setup(args: argparse.Namespace) -> None:
    asks = not args.non_interactive
    if asks and not sys.stdin.isatty():
        raise UsageError("set-up asks questions but stdin is not a terminal", hint="Add --non-interactive; see --help.")
    home = ensure_home()
    print(
        f"Hermes keeps everything in {home}.\nIt sends data only to the model you choose, to the platforms and servers"
        " you\nconnect and to the websites you let it read.\n"
    )
    steps = (_repair, _model, _platform, _approvals, _limit)
    before = _files(home)
    try:
        for step in steps:
            step(args, asks=asks)
    except KeyboardInterrupt:
        unchanged = "Nothing was changed. hermes setup asks again."
        saved = "Your answers so far are saved. hermes setup asks for the rest."
        print(f"\n\nStopped. {unchanged if _files(home) == before else saved}")
        raise
    missing = budget.unpriced(config.load())
    if missing is not None:
        print("\nOne thing is missing: {}.\n{}".format(*missing[:2]))
        return
    if not backends.backend_of(config.load()):
        print()
        prompts.tell(f"Hermes reads web pages, and searches the web once it has a search engine:\n{backends.HOW}")
    print("\nReady. hermes starts a conversation; hermes doctor checks the installation;\nhermes setup changes it.")


def _files(home: Path) -> list[bytes | None]:
    """The two files that hold the answers."""
    files = (home / "config.yaml", home / ".env")
    return [file.read_bytes() if file.exists() else None for file in files]


def _repair(args: argparse.Namespace, *, asks: bool) -> None:
    """Offer to repair a configuration that does not load."""
    error = config_repair.fault(hermes_home()) if asks else None
    if error is None:
        return
    prompts.tell(error.one_line())
    if not prompts.yes_or_no("Repair it? The old text is saved in a file beside it.", now=True, kept="yes"):
        raise error
    config_repair.run()
    print()


# -- the model ---------------------------------------------------------------------------------------------------------


def _model(args: argparse.Namespace, *, asks: bool) -> None:
    loaded = config.load()
    present = model.present(loaded)
    if args.model or args.provider or args.base_url:
        choice = model.named(args.model or "", provider=args.provider, base_url=args.base_url)
        if choice.base_url and asks:
            _own_server(args, choice)
            return
        if not choice.model:
            raise UsageError("no model was given", hint="Give --model NAME.")
        _take(args, choice, asks=asks)
    elif asks:
        while not _ask_model(args, loaded, present):
            pass
    elif present and present.endpoint is not None:
        print(f"Model: {present.label} (kept).")
    elif found := model.local_servers(loaded):
        _take(args, found[0], asks=False)
    else:
        hint = "Start one (Ollama, LM Studio, vLLM), or give --base-url and --model, or --provider and --key -."
        raise UsageError("no model was given, and no model server answers on this machine", hint=hint)


def _ask_model(args: argparse.Namespace, loaded: config.Config, present: PresentModel | None) -> bool:
    """Ask for a model and test it. Return whether it works; if not, print the reason."""
    choice = _ask_choice(model.local_servers(loaded), present)
    try:
        if choice is None:
            assert present is not None, "only a configured model can be kept"
            _test_present(args, loaded, present)
        elif choice.provider == "custom":
            return _own_server(args, choice)
        else:
            _take(args, choice, asks=True)
    except prompts.NobodyAnswers:
        raise
    except HermesError as error:
        prompts.tell(f"That did not work: {error.one_line()}")
        print("hermes setup --no-test saves a model that does not answer yet.\n")
        return False
    return True


def _ask_choice(found: list[SetupChoice], present: PresentModel | None) -> SetupChoice | None:
    """Ask which model to use; None keeps the present one. Servers on this machine come first."""
    known = [SetupChoice(name, model.SUGGESTED[name]) for name in _PROVIDERS]
    offered = [*found, SetupChoice("custom", ""), *known, SetupChoice("demo", "demo")]
    print("Which model should Hermes use?")
    for number, one in enumerate(offered, 1):
        local = "runs on this machine" if one in found else "needs a key"
        note = "built in, to try Hermes" if one.model == "demo" else local
        if one.provider == "custom":
            print(f"  {number}  {'your own':<11} {'a server at an address':<32} OpenAI-compatible")
        else:
            print(f"  {number}  {one.provider:<11} {text.harmless(one.model):<32} {note}")
    kept = "Enter: 1"
    if present is not None:
        missing = "" if present.endpoint is not None else "; its key is missing"
        kept = f"Enter keeps {text.harmless(present.label)}{missing}"
    while True:
        words = "Type a number, a model (openai/gpt-5) or an address (http://127.0.0.1:8000/v1)"
        answer = prompts.question(words, kept)
        if not answer:
            return None if present else offered[0]
        if (numbered := text.numbered(answer, offered)) is not None:
            return numbered
        try:
            choice = _parse_choice(answer)
        except UsageError as error:
            prompts.tell(error.one_line())
        else:
            return choice


def _parse_choice(answer: str) -> SetupChoice:
    """Turn a typed answer into a choice. Raises `UsageError` when it is none."""
    if answer.isdecimal():
        raise UsageError(f"There is no {answer[:9]} in the list.")
    if model.looks_like_address(answer):
        return SetupChoice("custom", "", model.address_of(answer))
    if answer.lower() in ("custom", "your own"):
        return SetupChoice("custom", "")
    if redaction.Redactor()(answer) != answer:
        raise UsageError("This looks like a key; it was sent nowhere. Choose the model first, then give its key.")
    choice = model.named(answer)
    if model.has_no_provider(choice):
        ways = "Write it as ollama/NAME, openai/NAME …, or give the address of your own server."
        raise UsageError(f"Which provider has {answer[:40]}? {ways}")
    return choice


def _own_server(args: argparse.Namespace, choice: SetupChoice) -> bool:
    """Ask for a server's address, key and model. Return False to go back to the list."""
    address = choice.base_url
    while not address:
        answer = prompts.question("Its address, such as http://127.0.0.1:8000/v1", "Enter: back to the list")
        if not answer:
            return False
        try:
            address = model.address_of(answer)
        except UsageError as error:
            prompts.tell(error.one_line())
    host = model.host_of(address)
    if model.is_unencrypted(address):
        prompts.tell(f"http:// is not encrypted: others on the network can read the key on its way to {host}.")
    key = "" if args.key is None else prompts.secret_from_flag("--key", args.key, variable=model.CUSTOM_KEY)
    names: list[str] = []
    if args.key is None and not args.no_test and is_own_machine(address):
        with contextlib.suppress(model.KeyRefused):  # a server that is not running needs no key
            model.models_at(address)
    for attempt in range(1, _ATTEMPTS + 1):
        if args.key is None or attempt > 1:
            key = prompts.secret(f"Key for {host}; sent only there, not shown (Enter: no key needed): ")
        try:
            if not args.no_test:
                address, names = model.models_at(address, key)
            break
        except model.KeyRefused as error:
            if attempt == _ATTEMPTS:
                raise
            prompts.tell(error.one_line())
    name = choice.model or _ask_name(names)
    while True:
        try:
            _take(args, SetupChoice("custom", name, address), asks=True, key=key)
        except ModelError as error:
            if error.kind != "model_not_found" or len(names) < 2:
                raise
            prompts.tell(f"That did not work: {error.what}.")
            name = _ask_name(names)
        else:
            return True


def _ask_name(names: list[str]) -> str:
    """Ask which of a server's models to use, unless there is only one."""
    if len(names) == 1:
        return names[0]
    shown = names[:_MODELS_SHOWN]
    for number, name in enumerate(shown, 1):
        print(f"  {number}  {text.harmless(name)}")
    if more := len(names) - len(shown):
        print(f"  and {more} more; type the name")
    words, kept = ("Which of its models? Type a number or a name", "Enter: 1") if names else (
        "The name of its model", "the server does not list its models")  # fmt: skip
    while True:
        answer = prompts.question(words, kept)
        if not answer and names:
            return names[0]
        if (numbered := text.numbered(answer, shown)) is not None:
            return numbered
        if model.looks_like_address(answer):
            prompts.tell(f"{answer[:60]!r} is an address; give the name of a model here.")
        elif names and answer.isdecimal():
            print(f"There is no {answer[:9]} in the list.")
        elif answer:
            return answer


def _test_present(args: argparse.Namespace, loaded: config.Config, present: PresentModel) -> None:
    """Test the present model; ask for its key if that is missing or refused."""
    endpoint = present.endpoint
    if args.no_test or (endpoint is not None and endpoint.provider == "demo"):
        return
    if endpoint is not None:
        print(f"Asking {text.harmless(endpoint.model)} at {present.host} …", flush=True)
        try:
            model.try_endpoint(endpoint)
            print("The model answers.")
            return
        except HermesError as error:
            prompts.tell(f"The model does not answer: {error.one_line()}")
            if not (isinstance(error, ModelError) and error.kind == "auth" and present.variable):
                return
        words = f"Another key for {present.host}; sent only there, not shown (Enter keeps the old one): "
    else:
        words = f"Key for {present.host}; sent only there, not shown: "
    if key := prompts.secret(words):
        model.try_endpoint(providers.primary(model.with_key(loaded, present.variable, key)))
        model.keep_key(present.variable, key)
        print(f"The model answers. The key is saved in {loaded.home / '.env'}.")
    elif endpoint is None:
        raise model.ModelDoesNotAnswer("no key was given")


def _take(args: argparse.Namespace, choice: SetupChoice, *, asks: bool, key: str | None = None) -> None:
    """Test the choice, ask again for a key that does not work, then save the choice.

    `key`: the key if it is already known; empty when none is needed.
    """
    loaded = config.load()
    variable = model.needed_key(choice, loaded)
    host = "" if choice.model == "demo" else model.host_for(choice, loaded)
    if key is None:
        key = "" if args.key is None else prompts.secret_from_flag("--key", args.key, variable=variable)
    only = f"sent only to {host}, not shown"
    for attempt in range(1, _ATTEMPTS + 1):
        if not key and variable and not loaded.environ(variable) and asks:
            print(f"Set-up will save {variable} in {loaded.home / '.env'}.")
            key = prompts.secret(f"Your key for {model.whose(choice, loaded)}; {only}: ")
        try:
            endpoint = providers.primary(model.candidate(loaded, choice, key))
            if not args.no_test:
                at = f" at {host}" if host else ""
                print(f"Asking {text.harmless(endpoint.model)}{at} …", flush=True)
                model.try_endpoint(endpoint)
            break
        except HermesError as error:
            if isinstance(error, providers.MissingKey):
                error = _no_key(model.whose(choice, loaded), variable, asks=asks)
            elif not asks and not key and choice.base_url and _blames_the_key(error):
                error = _no_key(host, "", asks=False)
            wants_key = variable or choice.base_url
            if not asks or attempt == _ATTEMPTS or not wants_key or not _blames_the_key(error):
                raise error from None
            prompts.tell(f"That did not work: {error.what}.")
            key = prompts.secret(f"{'Another key' if key else 'Your key'}, {only} (Enter gives up): ")
            if not key:
                raise model.ModelDoesNotAnswer("you gave no key that works") from None
    model.keep(choice, key, loaded)
    tried = "" if args.no_test else " The model answers."
    print(f"Model: {endpoint.provider}/{text.harmless(endpoint.model)}.{tried}")


def _no_key(provider: str, variable: str, *, asks: bool) -> HermesError:
    """Make the error about a missing key, without the advice to run set-up."""
    also = f", or set {variable}" if variable else ""
    hint = "" if asks else f"Add --key - and give it on standard input{also}."
    return model.ModelDoesNotAnswer(f"{provider} needs a key, but none was given", hint=hint)


def _blames_the_key(error: HermesError) -> bool:
    return not isinstance(error, ModelError) or error.kind == "auth"


# -- the rest ----------------------------------------------------------------------------------------------------------


def _platform(args: argparse.Namespace, *, asks: bool) -> None:
    def connect(name: str, pasted: str = "") -> None:
        options = argparse.Namespace(
            platform=name, token=args.token, owner=args.owner, no_pair=not asks, wait=600, yes=not asks or bool(pasted)
        )
        platform.run(options, pasted=pasted)

    if args.platform is not None:
        connect(args.platform)
        return
    offered = next((one for one in registry.known().values() if one.setup_invitation), None)
    if not asks or offered is None:
        return
    print(f"\nDo you want to talk to Hermes from your phone, through {offered.title}?")
    print(offered.setup_invitation)
    while True:
        on = [one.value for one, its in load_gateway_config(config.load()).platforms.items() if its.enabled]
        kept = f"Enter keeps {', '.join(on)}" if on else "Enter: not now"
        pasted = prompts.secret(f"Paste the bot's token; it is not shown ({kept}): ")
        if pasted.lower() in ("", "n", "no"):
            return
        try:
            connect(offered.name, pasted)
            return
        except HermesError as error:
            prompts.tell(f"That did not work: {error.one_line()}")


def _approvals(args: argparse.Namespace, *, asks: bool) -> None:
    now = config.load().approvals.mode
    mode = args.approvals
    if mode is None and asks:
        kept = "yes, as now" if now == "manual" else "no, as now"
        words = "\nShould Hermes ask you before it does something risky?"
        wanted = prompts.yes_or_no(words, now=now == "manual", kept=kept)
        mode = "manual" if wanted else "off"
    if mode is not None and mode != now:
        config.set_value("approvals.mode", mode)
    if mode == "off":
        what = "Inside its folder everything runs, also rm -r; what needs the network or files outside it is refused."
        prompts.tell(f"Hermes will not ask. {what}")


def _limit(args: argparse.Namespace, *, asks: bool) -> None:
    now = config.load().budget.day.usd
    if args.budget_day:
        _save_limit(args.budget_day, asks=asks)
    while args.budget_day is None and asks:
        kept = "Enter: no limit, as now" if now is None else f"Enter: ${now:g}, as now; none: no limit"
        answer = prompts.question("\nHow many dollars may Hermes spend on models per day?", kept)
        try:
            if answer:
                _save_limit(answer, asks=asks)
            break
        except UsageError as error:
            prompts.tell(error.one_line())
    _price(asks=asks)


def _price(*, asks: bool, limited: bool = False) -> None:
    """Ask for the price of a model that Hermes does not know, because a limit on money needs it.

    `limited`: a limit is saved next. Set-up that stops in between leaves a price, not a limit that refuses every call.
    """
    while asks and (name := budget.unpriced_model(config.load(), limited=limited)) is not None:
        words = f"\nWhat does {text.harmless(name)} cost: dollars for a million tokens, input and output (3 15)?"
        answer = prompts.question(words, "Enter: it costs nothing")
        try:
            amounts = [float(one.removeprefix("$")) for one in answer.split()] or [0.0, 0.0]
        except ValueError:
            amounts = []
        if len(amounts) != 2 or not all(0 <= one < 1e6 for one in amounts):
            prompts.tell("Two amounts are needed: of input and of output, such as 3 15.")
            continue
        price = dict(zip(("input", "output"), amounts, strict=True))
        config.set_value(("models", name, "price"), price)


def _save_limit(answer: str, *, asks: bool) -> None:
    if answer.strip().lower() == "none":
        config.unset_value("budget.day.usd")
        return
    try:
        amount = float(answer.strip().removeprefix("$"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e9:
        raise UsageError(f"{answer[:40]!r} is not an amount of dollars", hint="Give a number such as 5, or none.")
    _price(asks=asks, limited=True)
    config.set_value("budget.day.usd", int(amount) if amount.is_integer() else amount)
    free = "" if amount else " Only a model that costs nothing answers; none removes the limit."
    print(f"Hermes spends at most ${amount:g} per day.{free}")
