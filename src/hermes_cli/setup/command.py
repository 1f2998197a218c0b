"""`hermes setup`: from nothing to a working assistant in at most five questions.

Model, its key, a platform, approvals, a daily limit; a server of one's own is offered first and adds its address. A key
is sent to the host that its question names, and to no other; it is tried before it is stored, in `.env` alone. Each
question shows the present value and keeps it on Enter, so running it again changes only what is answered. Every
question has an option; `--non-interactive` asks none. An invalid answer is asked for again; Ctrl-C keeps the answers
before it. A configuration that does not load is repaired first, if the person agrees.
"""

from __future__ import annotations

import argparse
import sys

from gateway.config import load_gateway_config
from gateway.platforms import registry
from hermes_agent import budget
from hermes_agent.models import providers
from hermes_agent.models.base import ModelError
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
        "", "--non-interactive      takes the first model server found here",
        "--non-interactive --provider openai --key - < key.txt",
        "--non-interactive --base-url http://127.0.0.1:9000/v1 --model mine",
    )  # fmt: skip
    parser.add_argument("--non-interactive", action="store_true", help="ask nothing; keep what is not given")
    parser.add_argument("-m", "--model", metavar="NAME", help="the model, such as gpt-5 or ollama/llama3")
    parser.add_argument("--provider", metavar="NAME", help="the provider of the model")
    parser.add_argument("--base-url", metavar="URL", help="the address of a model server of your own")
    parser.add_argument("--key", metavar="WHERE", help=f"its key: {prompts.SECRET_FROM}")
    parser.add_argument("--no-test", action="store_true", help="do not ask the model anything")
    parser.add_argument("--platform", metavar="NAME", help="connect this platform, such as {platform}")
    parser.add_argument("--token", metavar="WHERE", help=f"its token: {prompts.SECRET_FROM}")
    parser.add_argument("--owner", metavar="ID", help="your id there")
    parser.add_argument("--approvals", choices=("manual", "off"), help="ask before something risky, or never")
    parser.add_argument("--budget-day", metavar="USD", help="daily spending limit for everybody; none: no limit")
    parser.set_defaults(run=_setup)


def before_talking() -> None:
    """Ask the questions of set-up before a chat that has no model yet."""
    ensure_home()  # so that an error of the home is reported alone
    print("No model yet: a few questions first. hermes --model demo asks none.")
    parser = Parser(prog="hermes setup")
    register(parser)
    _setup(parser.parse_args([]))


def _setup(args: argparse.Namespace) -> None:
    asks = not args.non_interactive
    if asks and not sys.stdin.isatty():
        raise UsageError("set-up asks questions but stdin is not a terminal", hint="Add --non-interactive; see --help.")
    home = ensure_home()
    print(f"Everything is kept in {home}.\nNothing is sent anywhere but to the model you choose.\n")
    steps = (_loads, _model, _platform, _safety, _limit)
    try:
        for step in steps:
            step(args, asks=asks)
    except KeyboardInterrupt:
        print("\n\nStopped. The answers so far are kept; hermes setup continues from there.")
        raise
    missing = budget.unpriced(config.load())
    if missing is not None:
        print("\nOne thing is missing: {}.\n{}".format(*missing))
        return
    print("\nReady. hermes starts a conversation; hermes doctor checks everything;\nhermes setup changes it.")


def _loads(args: argparse.Namespace, *, asks: bool) -> None:
    """Repair a configuration that does not load before anything is added to it."""
    error = config_repair.fault(hermes_home()) if asks else None
    if error is None:
        return
    prompts.tell(error.one_line())
    if not prompts.yes_or_no("Repair it? The old text is kept beside it.", now=True, kept="yes"):
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
            raise UsageError("which model?", hint="Give --model NAME.")
        _take(args, choice, asks=asks)
    elif asks:
        while not _chosen(args, loaded, present):
            pass
    elif present and present.endpoint is not None:
        print(f"Model: {present.label} (kept).")
    elif found := model.local_servers(loaded):
        _take(args, found[0], asks=False)
    else:
        hint = "Start one (Ollama, LM Studio, vLLM), or give --base-url and --model, or --provider and --key -."
        raise UsageError("no model server answers on this machine, and none was given", hint=hint)


def _chosen(args: argparse.Namespace, loaded: config.Config, present: PresentModel | None) -> bool:
    """Whether the model that the person picks works; if not, the reason is printed."""
    choice = _asked(model.local_servers(loaded), present)
    try:
        if choice is None:
            assert present is not None, "there was something to keep"
            _tried_again(args, loaded, present)
        elif choice.provider == "custom":
            return _own_server(args, choice)
        else:
            _take(args, choice, asks=True)
    except prompts.NobodyAnswers:
        raise
    except HermesError as error:
        prompts.tell(f"That did not work: {error.one_line()}")
        print("hermes setup --no-test keeps one that does not answer yet.\n")
        return False
    return True


def _asked(found: list[SetupChoice], present: PresentModel | None) -> SetupChoice | None:
    """The choice of the person; None keeps the present model. Servers on this machine come first."""
    known = [SetupChoice(name, model.SUGGESTED[name]) for name in _PROVIDERS]
    offered = [*found, SetupChoice("custom", ""), *known, SetupChoice("demo", "demo")]
    print("Which model?")
    for number, one in enumerate(offered, 1):
        note = "runs here" if one in found else "built in, for trying" if one.model == "demo" else "needs a key"
        if one.provider == "custom":
            print(f"  {number}  {'your own':<11} {'a server by its address':<32} OpenAI-compatible")
        else:
            print(f"  {number}  {one.provider:<11} {text.harmless(one.model):<32} {note}")
    kept = "Enter takes 1"
    if present is not None:
        missing = "" if present.endpoint is not None else "; its key is missing"
        kept = f"Enter keeps {text.harmless(present.label)}{missing}"
    while True:
        said = prompts.question("A number, an address such as http://127.0.0.1:8000/v1, or openai/gpt-5", kept)
        if not said:
            return None if present else offered[0]
        if said.isdecimal() and len(said) < 4 and 0 < int(said) <= len(offered):
            return offered[int(said) - 1]
        try:
            choice = _named(said)
        except UsageError as error:
            prompts.tell(error.one_line())
        else:
            return choice


def _named(said: str) -> SetupChoice:
    """The choice that was typed. Raises an error when it is not one."""
    if said.isdecimal():
        raise UsageError(f"There is no {said[:9]}.")
    if model.looks_like_address(said):
        return SetupChoice("custom", "", model.address_of(said))
    if said.lower() in ("custom", "your own"):
        return SetupChoice("custom", "")
    if redaction.Redactor()(said) != said:
        raise UsageError("That looks like a key; it was sent nowhere. The model comes first, then its key.")
    choice = model.named(said)
    if model.has_no_provider(choice):
        ways = "Write it as ollama/NAME, openai/NAME …, or give the address of your own server."
        raise UsageError(f"Which provider has {said[:40]}? {ways}")
    return choice


def _own_server(args: argparse.Namespace, choice: SetupChoice) -> bool:
    """A server by its address, its key and its model. False: back to the list."""
    address = choice.base_url
    while not address:
        said = prompts.question("Its address, such as http://127.0.0.1:8000/v1", "Enter: back to the list")
        if not said:
            return False
        try:
            address = model.address_of(said)
        except UsageError as error:
            prompts.tell(error.one_line())
    host = model.host_of(address)
    if model.is_readable_on_the_way(address):
        prompts.tell(f"http:// is not encrypted: on the way to {host} others can read the key.")
    key = "" if args.key is None else prompts.secret_from_flag("--key", args.key, variable=model.CUSTOM_KEY)
    names: list[str] = []
    for attempt in range(1, _ATTEMPTS + 1):
        if args.key is None or attempt > 1:
            key = prompts.secret(f"Key for {host}; sent there only, not shown (Enter: it needs none): ")
        try:
            if not args.no_test:
                address, names = model.models_at(address, key)
            break
        except model.KeyRefused as error:
            if attempt == _ATTEMPTS:
                raise
            prompts.tell(error.one_line())
    _take(args, SetupChoice("custom", choice.model or _model_of(names), address), asks=True, key=key)
    return True


def _model_of(names: list[str]) -> str:
    """Which of a server's models; asked only when there is something to choose."""
    if len(names) == 1:
        return names[0]
    shown = names[:_MODELS_SHOWN]
    for number, name in enumerate(shown, 1):
        print(f"  {number}  {text.harmless(name)}")
    if more := len(names) - len(shown):
        print(f"  and {more} more, by name")
    words, kept = ("Which of its models? A number or a name", "Enter takes 1") if names else (
        "The name of its model", "it does not list any")  # fmt: skip
    while True:
        said = prompts.question(words, kept)
        if not said and names:
            return names[0]
        if said.isdecimal() and len(said) < 4 and 0 < int(said) <= len(shown):
            return shown[int(said) - 1]
        if model.looks_like_address(said):
            prompts.tell(f"{said[:60]!r} is an address; the name of a model is asked for here.")
        elif names and said.isdecimal():
            print(f"There is no {said[:9]}.")
        elif said:
            return said


def _tried_again(args: argparse.Namespace, loaded: config.Config, present: PresentModel) -> None:
    """Try the present model; ask for a key that is missing or refused."""
    endpoint = present.endpoint
    if args.no_test or (endpoint is not None and endpoint.provider == "demo"):
        return
    if endpoint is not None:
        print(f"Asking {text.harmless(endpoint.model)} at {present.host} …", flush=True)
        try:
            model.try_endpoint(endpoint)
            print("It answers.")
            return
        except HermesError as error:
            prompts.tell(f"It does not answer: {error.one_line()}")
            if not (isinstance(error, ModelError) and error.kind == "auth" and present.variable):
                return
        words = f"Another key for {present.host}; sent there only, not shown (Enter keeps this one): "
    else:
        words = f"Key for {present.host}; sent there only, not shown: "
    if key := prompts.secret(words):
        model.try_endpoint(providers.primary(model.with_key(loaded, present.variable, key)))
        model.keep_key(present.variable, key)
        print(f"It answers. The key is kept in {loaded.home / '.env'}.")
    elif endpoint is None:
        raise model.ModelDoesNotAnswer("no key was given")


def _take(args: argparse.Namespace, choice: SetupChoice, *, asks: bool, key: str | None = None) -> None:
    """Try the choice until it works, then keep it. A key that does not work is asked for again.

    `key`: asked for already; empty when none is needed.
    """
    loaded = config.load()
    variable = model.needed_key(choice, loaded)
    host = "" if choice.model == "demo" else model.host_for(choice, loaded)
    if key is None:
        key = "" if args.key is None else prompts.secret_from_flag("--key", args.key, variable=variable)
    only = f"sent to {host} only, not shown"
    for attempt in range(1, _ATTEMPTS + 1):
        if not key and variable and not loaded.environ(variable) and asks:
            print(f"{variable} is kept in {loaded.home / '.env'}.")
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
            prompts.tell(f"That did not work: {error.one_line()}")
            key = prompts.secret(f"Another key, {only} (Enter gives up): ")
            if not key:
                raise model.ModelDoesNotAnswer("no key that works was given") from None
    model.keep(choice, key, loaded)
    tried = "" if args.no_test else " It answers."
    print(f"Model: {endpoint.provider}/{text.harmless(endpoint.model)}.{tried}")


def _no_key(provider: str, variable: str, *, asks: bool) -> HermesError:
    """The error about a missing key, for somebody who is in set-up already."""
    also = f", or set {variable}" if variable else ""
    hint = "" if asks else f"Add --key - and give it on standard input{also}."
    return model.ModelDoesNotAnswer(f"{provider} needs a key, and none was given", hint=hint)


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
    print(f"\nTalk to Hermes from your phone, with {offered.title}?")
    print(offered.setup_invitation)
    while True:
        on = [one.value for one, its in load_gateway_config(config.load()).platforms.items() if its.enabled]
        kept = f"Enter keeps {', '.join(on)}" if on else "Enter: not now"
        pasted = prompts.secret(f"Paste its token; it is not shown ({kept}): ")
        if pasted.lower() in ("", "n", "no"):
            return
        try:
            connect(offered.name, pasted)
            return
        except HermesError as error:
            prompts.tell(f"That did not work: {error.one_line()}")


def _safety(args: argparse.Namespace, *, asks: bool) -> None:
    now = config.load().approvals.mode
    mode = args.approvals
    if mode is None and asks:
        kept = "it asks, as now" if now == "manual" else "it never asks, as now"
        wanted = prompts.yes_or_no("\nShould Hermes ask before something risky?", now=now == "manual", kept=kept)
        mode = "manual" if wanted else "off"
    if mode is not None and mode != now:
        config.set_value("approvals.mode", mode)
    if mode == "off":
        print("It will not ask. Commands that can destroy the machine are refused all the same.")


def _limit(args: argparse.Namespace, *, asks: bool) -> None:
    now = config.load().budget.day.usd
    if args.budget_day:
        _keep_limit(args.budget_day)
    while args.budget_day is None and asks:
        kept = "Enter: no limit, as now" if now is None else f"Enter: ${now:g}, as now; none: no limit"
        said = prompts.question("\nHow many dollars may all of it cost a day?", kept)
        try:
            if said:
                _keep_limit(said)
            return
        except UsageError as error:
            prompts.tell(error.one_line())


def _keep_limit(said: str) -> None:
    if said.strip().lower() == "none":
        config.unset_value("budget.day.usd")
        return
    try:
        amount = float(said.strip().removeprefix("$"))
    except ValueError:
        amount = -1.0
    if not 0 <= amount < 1e9:
        raise UsageError(f"{said[:40]!r} is not an amount of dollars", hint="Give a number such as 5, or none.")
    config.set_value("budget.day.usd", int(amount) if amount.is_integer() else amount)
    print(f"At most ${amount:g} a day.")
