"""What a person reads when something goes wrong."""

from hermes_config.errors import HermesError, HomeError, UsageError


class Broken(HermesError):
    """The thing is broken."""


class BrokenAgain(Broken):
    pass


def test_the_docstring_is_the_message_and_subclasses_inherit_it() -> None:
    assert str(Broken()) == "The thing is broken"
    assert str(BrokenAgain(hint="Mend it.")) == "The thing is broken. Mend it."


def test_an_error_prints_what_where_and_what_to_do() -> None:
    error = HomeError("cannot write", where="/x/y", hint="Free some space.")
    assert str(error) == "cannot write (/x/y). Free some space."


def test_an_error_is_one_line_whatever_it_quotes() -> None:
    error = HermesError("bad title 'a\nb\r\n\tc'", hint="Use\none line.")
    assert error.one_line() == "bad title 'a b c'. Use one line."


def test_usage_errors_have_their_own_exit_code() -> None:
    assert (HermesError().exit_code, UsageError().exit_code) == (1, 2)


def test_a_chat_reads_the_name_of_a_program_and_no_other_path() -> None:
    shell = HermesError("exit code 127: /usr/bin/bash: line 1: /srv/secret/x.sh: No such file or directory")
    assert shell.in_chat() == "exit code 127: bash: line 1: a file of the home: No such file or directory"
