"""From a stranger's SQL text to one syntax tree, within limits checked before any parsing.

The parser is recursive and not ours, so it only ever sees text that is short, flat and a single
statement that starts with a word we know. Whatever it still raises becomes a `SqlError`:

    text -> length -> tokens -> one statement -> nesting -> first word -> tree
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.sqlite import SQLiteParser
from sqlglot.tokenizer_core import Token, TokenType

from network.wire.errors import SqlError

MAXIMUM_CHARACTERS: Final = 4096
MAXIMUM_TOKENS: Final = 512
MAXIMUM_NESTING: Final = 16  # the parser needs some ten Python frames per level; 1,000 is all there are
MAXIMUM_PART: Final = 120  # characters of the offending part that an error repeats

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_DIALECT = SQLite()

# sqlglot warns in the log about text it finds odd. What strangers write is not news to an operator, and they
# could fill the log with it; the author hears of it by the SqlError.
logging.getLogger("sqlglot").addFilter(lambda record: False)


@dataclass(frozen=True, slots=True)
class Statement:
    """One parsed statement and how many `?` its text holds."""

    tree: exp.Expr
    placeholders: int


class _Parser(SQLiteParser):
    """sqlglot's SQLite parser, which keeps text it does not know as a `Command`; ours refuses it."""

    def _warn_unsupported(self) -> None:
        self.raise_error("unsupported syntax")


def read_statement(sql: str, first_words: Mapping[str, str], maximum_tokens: int = MAXIMUM_TOKENS) -> Statement:
    """Parse one statement that begins with an accepted word.

    `first_words` maps the first word in capitals to "" if accepted, else to the hint for the error;
    its entry "" is the hint for every word not named, and for text that does not parse.
    """
    tokens = _single_statement(_tokens(sql, maximum_tokens))
    _check_nesting(tokens)
    first = tokens[0].text.upper()
    hint = first_words.get(first, first_words[""])
    if hint:
        raise SqlError(shorten(tokens[0].text), "the statement cannot begin like this", hint)
    placeholders = sum(token.token_type is TokenType.PLACEHOLDER for token in tokens)
    return Statement(_parse(tokens, sql, first_words[""]), placeholders)


def shorten(text: str) -> str:
    """Text for an error message: one line, of limited length, printable."""
    line = " ".join(text.split())
    line = line if len(line) <= MAXIMUM_PART else line[: MAXIMUM_PART - 3] + "..."
    return line if line.isprintable() else ascii(line)


def describe(node: exp.Expr) -> str:
    """The SQL of a part of the tree, for an error message; never fails."""
    try:
        return shorten(node.sql(comments=False, unsupported_level=ErrorLevel.IGNORE))
    except Exception:  # noqa: BLE001  # a foreign printer on a stranger's tree must not hide our message
        return type(node).__name__.upper()


def refuse(node: exp.Expr, reason: str, accepted: str = "") -> NoReturn:
    """Raise the SqlError that names this part of the tree."""
    raise SqlError(describe(node), reason, accepted)


def check_only(node: exp.Expr, allowed: set[str], reason: str, accepted: str) -> None:
    """Refuse a node with any clause besides the allowed ones.

    Listing what is allowed, not what is refused, keeps a clause we never heard of from being
    silently ignored.
    """
    for name, value in node.args.items():
        if value and name not in allowed:
            part = value[0] if isinstance(value, list) else value
            text = describe(part) if isinstance(part, exp.Expr) else ""
            raise SqlError(text or name.strip("_").replace("_", " ").upper(), reason, accepted)


def _tokens(sql: str, maximum: int) -> list[Token]:
    if not isinstance(sql, str):
        raise SqlError(shorten(type(sql).__name__), "SQL must be text", "pass a str")
    if len(sql) > MAXIMUM_CHARACTERS:
        reason = f"the text has {len(sql)} characters"
        raise SqlError(shorten(sql[:40]), reason, f"at most {MAXIMUM_CHARACTERS} are accepted")
    if "\0" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise SqlError(shorten(sql[:40]), "the text holds a NUL or half a surrogate pair", "pass plain Unicode text")
    try:
        tokens = _DIALECT.tokenize(sql)
    except TokenError as error:
        hint = "close every quote and comment"
        raise SqlError(shorten(sql[-40:]), "the text does not split into words", hint) from error
    except Exception as error:  # see `_parse`
        raise SqlError(shorten(sql[:40]), "the text does not split into words") from error
    if len(tokens) > maximum:
        reason = f"the statement has {len(tokens)} words and signs"
        raise SqlError(shorten(sql[:40]), reason, f"at most {maximum} are accepted")
    return tokens


def _single_statement(tokens: list[Token]) -> list[Token]:
    """The tokens without final semicolons."""
    end = len(tokens)
    while end and tokens[end - 1].token_type is TokenType.SEMICOLON:
        end -= 1
    tokens = tokens[:end]
    if not tokens:
        raise SqlError("", "the statement is empty", "write one statement")
    if any(token.token_type is TokenType.SEMICOLON for token in tokens):
        raise SqlError(";", "there is more than one statement", "pass them one at a time")
    return tokens


def _check_nesting(tokens: list[Token]) -> None:
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        if depth > MAXIMUM_NESTING:
            reason = f"parentheses are nested more than {MAXIMUM_NESTING} deep"
            raise SqlError(token.text, reason, "a conjunction needs none")


def _parse(tokens: list[Token], sql: str, grammar: str) -> exp.Expr:
    try:
        trees = _Parser(dialect=_DIALECT).parse(tokens, sql)
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        part = shorten(str(details.get("highlight") or tokens[-1].text))
        where = f"line {details.get('line')}, column {details.get('col')}"
        raise SqlError(part, f"{details.get('description') or 'it does not parse'} ({where})", grammar) from error
    except RecursionError as error:
        raise SqlError(shorten(sql), "the statement is nested too deeply", "write a plain conjunction") from error
    except Exception as error:
        # A foreign parser on hostile text: sqlglot has been seen to raise AttributeError, TypeError and
        # the like on nonsense. Whatever it trips over, the text is outside our language.
        raise SqlError(shorten(sql), "it does not parse", grammar) from error
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise SqlError(shorten(sql), "it is not one statement", "pass statements one at a time")
    return tree
