"""From a stranger's SQL text to one syntax tree, within limits checked before any parsing.

The parser is recursive and not ours, so it only ever sees text that is short, flat and a single
statement that starts with a word we know. Whatever it still raises becomes a `SqlError`:

    text -> length -> tokens -> one statement -> nesting -> first word -> tree
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final, NoReturn

from sqlglot import exp
from sqlglot.dialects.sqlite import SQLite
from sqlglot.errors import ErrorLevel, ParseError, TokenError
from sqlglot.parsers.sqlite import SQLiteParser
from sqlglot.tokenizer_core import Token, TokenType

from hullcast.broker.tables.schema import fold
from hullcast.broker.tables.values import has_utf8
from hullcast.network.wire.errors import HullcastError, Remedy, SqlError

MAXIMUM_CHARACTERS: Final = 4096
MAXIMUM_TOKENS: Final = 512
MAXIMUM_NESTING: Final = 16  # the parser needs some ten Python frames per level; 1,000 is all there are
MAXIMUM_PART: Final = 120  # characters of the offending part that an error repeats
MAXIMUM_NAME: Final = 64  # characters of the name of a table, a column or a view

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_DIALECT = SQLite()

# sqlglot warns in the log about text it finds odd. What strangers write is not news to an operator, and they
# could fill the log with it; the author gets the SqlError.
logging.getLogger("sqlglot").addFilter(lambda record: False)


@dataclass(frozen=True, slots=True)
class Statement:
    """One parsed statement, how many `?` its text holds, and its words and signs as they were parsed.

    What only streams have, the parser does not know, and is taken out before: `is_stream` (CREATE and DROP of one), the
    `windows` by where the name before each begins (the text between the brackets), and the `terms` of WITH (..) at the
    end of a SELECT, as they are written.
    """

    tree: exp.Expr
    placeholders: int
    tokens: list[Token]
    is_stream: bool = False
    windows: Mapping[int, str] = field(default_factory=dict)
    terms: tuple[tuple[str, str], ...] = ()


class _Parser(SQLiteParser):
    """sqlglot's SQLite parser, which keeps text it does not know as a `Command`; ours refuses it."""

    def _warn_unsupported(self) -> None:
        self.raise_error("unsupported syntax")


_WRITE: Final = Remedy("use engine.upsert(table, rows)", "use publish(table, rows)")
_KEYS: Final = '[key for (key,) in {}query("SELECT key FROM table WHERE ..")]'
_REMOVE: Final = Remedy(
    f"use engine.delete(table, keys); by a condition, engine.delete(table, {_KEYS.format('engine.')})",
    f"use delete(table, keys); by a condition, delete(table, {_KEYS.format('await ')})",
)
_TABLES: Final = Remedy("use engine.execute(sql)", "use execute(sql)")
_READ: Final = Remedy("use engine.subscribe(sql) or engine.query(sql)", "use subscribe(sql) or query(sql)")
_TOGETHER: Final = "the rows of one batch are applied together, or none of them"
#: What to do instead, by the first word of a statement that the caller does not take.
_INSTEAD: Final = {
    **dict.fromkeys(("INSERT", "UPDATE", "REPLACE", "MERGE", "UPSERT"), _WRITE),
    **dict.fromkeys(("DELETE", "TRUNCATE"), _REMOVE),
    **dict.fromkeys(("CREATE", "DROP"), _TABLES),
    **dict.fromkeys(("SELECT", "WITH", "VALUES", "FROM"), _READ),
    **dict.fromkeys(("BEGIN", "START", "COMMIT", "ROLLBACK", "SAVEPOINT"), _TOGETHER),
    **dict.fromkeys(("SHOW", "DESCRIBE", "DESC"), Remedy("use engine.tables", "use tables()")),
    "ADVANCE": _TABLES,
    "ALTER": Remedy(
        "create another table and copy the rows: engine.upsert(new, [row._asdict() for row in engine.query(sql)])",
        "create another table and copy the rows: publish(new, [row._asdict() for row in await query(sql)])",
    ),
}


def read_statement(
    sql: str, first_words: Container[str], grammar: str, maximum_tokens: int = MAXIMUM_TOKENS
) -> Statement:
    """Parse one statement that begins with one of these words (in capitals); `grammar` is the hint otherwise."""
    tokens = _single_statement(_tokens(sql, maximum_tokens))
    _check_nesting(tokens)
    if tokens[0].text.upper() not in first_words:
        _refuse_statement(tokens[0], grammar)
    _check_placeholders(tokens)
    placeholders = sum(token.token_type is TokenType.PLACEHOLDER for token in tokens)
    tokens, is_stream = _stream_as_table(_terms_first(tokens))
    tokens, windows = _without_windows(tokens, sql)
    tokens, terms = _without_terms(tokens)
    return Statement(_parse(tokens, sql, grammar), placeholders, tokens, is_stream, windows, terms)


def read_words(sql: str) -> list[Token]:
    """The words and signs of one statement, for those that no parser knows."""
    return _single_statement(_tokens(sql, MAXIMUM_TOKENS))


def _stream_as_table(tokens: list[Token]) -> tuple[list[Token], bool]:
    """CREATE STREAM .. and DROP STREAM .. as of a table, and whether it is of a stream."""
    if len(tokens) < 2 or tokens[1].text.upper() != "STREAM" or tokens[0].text.upper() not in ("CREATE", "DROP"):
        return tokens, False
    word = tokens[1]
    table = Token(TokenType.TABLE, "TABLE", word.line, word.col, word.start, word.end, [])
    return [tokens[0], table, *tokens[2:]], True


def _without_windows(tokens: list[Token], sql: str) -> tuple[list[Token], dict[int, str]]:
    """A SELECT without [ROWS ..] and [RANGE ..], which SQLite would read as names, and these."""
    kept: list[Token] = []
    windows: dict[int, str] = {}
    if tokens[0].token_type is not TokenType.SELECT:
        return tokens, windows
    for token in tokens:
        is_window = (
            len(kept) > 1
            and sql[token.start : token.start + 1] == "["
            and token.text.upper().split()[:1] in (["ROWS"], ["RANGE"])
            and kept[-1].token_type in _NAMES
            and kept[-2].token_type in _BEFORE_TABLES
        )
        if is_window and kept[-1].start in windows:
            reason = f"{kept[-1].text} has two windows"
            raise SqlError(f"[{shorten(token.text)}]", reason, "give it one: [ROWS 100] or [RANGE '10s']")
        if is_window:
            windows[kept[-1].start] = token.text
        else:
            kept.append(token)
    return kept, windows


_NAMES = {TokenType.VAR, TokenType.IDENTIFIER}
_BEFORE_TABLES = {TokenType.FROM, TokenType.JOIN, TokenType.COMMA}
_TERMS_HINT = "accepted: WITH (memory = 10000)"


def _without_terms(tokens: list[Token]) -> tuple[list[Token], tuple[tuple[str, str], ...]]:
    """SELECT .. without WITH (name = value, ..) at its end, and these. (A WITH of SQL has a name before its (.)"""
    kinds = [token.token_type for token in tokens]
    if kinds[0] is not TokenType.SELECT or kinds[-1] is not TokenType.R_PAREN or TokenType.WITH not in kinds:
        return tokens, ()
    start = len(kinds) - 1 - kinds[::-1].index(TokenType.WITH)
    if kinds[start + 1] is not TokenType.L_PAREN:
        return tokens, ()
    terms: list[tuple[str, str]] = []
    for at in range(start + 2, len(tokens), 4):  # name = value ,
        name, sign, value, after = (tokens[at : at + 4] + [tokens[-1]] * 4)[:4]
        last = at + 3 == len(tokens) - 1
        if sign.token_type is not TokenType.EQ or after.token_type is not (
            TokenType.R_PAREN if last else TokenType.COMMA
        ):
            raise SqlError(shorten(" ".join(token.text for token in tokens[start:])), "it cannot be read", _TERMS_HINT)
        terms.append((fold(name.text), value.text))
    return tokens[:start], tuple(terms)


def _terms_first(tokens: list[Token]) -> list[Token]:
    """CREATE VIEW v AS SELECT .. WITH (..) as CREATE VIEW v WITH (..) AS SELECT .., which the parser understands."""
    kinds = [token.token_type for token in tokens]
    if TokenType.VIEW not in kinds[:4] or TokenType.ALIAS not in kinds or kinds[-1] is not TokenType.R_PAREN:
        return tokens
    start, depth = len(tokens) - 1, 1
    while start and depth:
        start -= 1
        depth += (kinds[start] is TokenType.R_PAREN) - (kinds[start] is TokenType.L_PAREN)
    start, behind = start - 1, kinds.index(TokenType.ALIAS)
    if start <= behind or kinds[start] is not TokenType.WITH:
        return tokens
    return [*tokens[:behind], *tokens[start:], *tokens[behind:start]]


def refuse_other_statements(sql: str) -> None:
    """A SqlError that helps, if a text that could not be read as a query writes rows, or has placeholders of another
    database."""
    try:
        tokens = _DIALECT.tokenize(sql)
    except Exception:  # noqa: BLE001  # see `parsing`; the caller has its own words for what does not parse
        return
    if tokens and tokens[0].text.upper() in _INSTEAD and _INSTEAD[tokens[0].text.upper()] is not _READ:
        _refuse_statement(tokens[0], "")
    _check_placeholders(tokens)


def _refuse_statement(first: Token, grammar: str) -> NoReturn:
    word = shorten(first.text.upper())
    instead = _INSTEAD.get(word, grammar)
    raise SqlError(word, f"{word} is not supported{' here' if instead in (_READ, _TABLES) else ''}", instead)


def _check_placeholders(tokens: list[Token]) -> None:
    """Refuse the placeholders of other databases, which would be read as something else: %s, %(name)s, $1, :name,
    @name, ?1 and {name}."""
    for token, after in zip_longest(tokens, tokens[1:]):
        follows = after is not None and after.start == token.end + 1
        text = token.text + (after.text if after is not None and follows else "")
        if token.token_type is TokenType.MOD:
            found = text == "%s" or text == "%("
            text = "%(name)s" if text == "%(" else text
        elif token.token_type is TokenType.VAR:
            found, text = token.text.startswith("$"), token.text
        elif token.token_type is TokenType.PLACEHOLDER:
            found = follows and after is not None and after.token_type is TokenType.NUMBER
        elif token.token_type is TokenType.L_BRACE:
            found, text = True, "{..}"
        else:
            found = follows and token.token_type in (TokenType.COLON, TokenType.PARAMETER)
        if found:
            raise SqlError(
                shorten(text), "parameters are written as ?", "write ? for each value and give them in order"
            )


def shorten(text: str) -> str:
    """Text for an error message: one line, of limited length, printable."""
    line = " ".join(text.split())
    line = line if len(line) <= MAXIMUM_PART else line[: MAXIMUM_PART - 3] + "..."
    return line if line.isprintable() else ascii(line)


def describe(node: exp.Expr) -> str:
    """The SQL of a part of the tree, for an error message: as its author wrote it, if we find it; never fails."""
    try:
        return _as_written(node) or shorten(node.sql(comments=False, unsupported_level=ErrorLevel.IGNORE))
    except Exception:  # noqa: BLE001  # a foreign printer on a stranger's tree must not hide our message
        return type(node).__name__.upper()


def _as_written(node: exp.Expr) -> str:
    """The text that a condition or a term was read from: the words and signs around its names and values that are read
    as the same again. Empty if they are not found, or are many."""
    sql, tokens = node.root().meta.get(_SOURCE, ("", []))
    leaves = [leaf.meta for leaf in node.walk() if "start" in leaf.meta]
    if not leaves or not isinstance(node, exp.Condition) or isinstance(node, exp.Query):
        return ""
    begins, ends = min(leaf["start"] for leaf in leaves), max(leaf["end"] for leaf in leaves)
    first = next((at for at, token in enumerate(tokens) if token.end >= begins), 0)
    last = next((at for at, token in enumerate(tokens) if token.end >= ends), 0)
    for more in range(_AROUND + 1):
        for before in range(min(more, first) + 1):
            around = tokens[first - before : last + more - before + 1]
            text = sql[around[0].start : around[-1].end + 1]
            if len(text) > MAXIMUM_PART:
                return ""
            with suppress(Exception):  # it may be any part of a stranger's text
                if _Parser(dialect=_DIALECT).parse(around, sql) == [node]:
                    return shorten(text)
    return ""


_SOURCE: Final = "hullcast_source"  # where the root of a tree keeps what it was read from
_AROUND: Final = 4  # words and signs beside names and values: NOT, IS NOT NULL, a function and its parentheses


def refuse(node: exp.Expr, reason: str, accepted: str = "") -> NoReturn:
    """Raise the SqlError that names this part of the tree."""
    raise SqlError(describe(node), reason, accepted)


class Unfollowed(SqlError):
    """A SELECT that `query` may answer, but no subscription follows; `parse_subscription` adds the ways that there are
    to have its rows."""


def refuse_to_follow(node: exp.Expr, reason: str, accepted: str = "") -> NoReturn:
    """Raise the error for a part that subscriptions do not have, and queries do."""
    raise Unfollowed(describe(node), reason, accepted)


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


def relation_name(node: object, grammar: str) -> str:
    """The name of a table or a view that is created or dropped."""
    if not isinstance(node, exp.Table):
        raise SqlError(shorten(str(node)), "a table name must be a plain name", grammar)
    check_only(node, {"this"}, "a table name must be a plain name, without database or alias", grammar)
    name = plain_name(node.this)
    if fold(name).startswith(("sqlite_", "pragma_")):
        raise SqlError(name, "names that begin with sqlite_ or pragma_ are reserved", "choose another name")
    return name


def plain_name(node: object) -> str:
    """A name that prints on one line and needs no escaping when quoted."""
    name = node.name if isinstance(node, exp.Identifier) else ""
    if not name or len(name) > MAXIMUM_NAME or not name.isprintable() or '"' in name:
        hint = f"accepted: 1 to {MAXIMUM_NAME} printable characters without double quotes"
        raise SqlError(shorten(name or str(node)), "it is not a valid name", hint)
    return name


def check_text(sql: str) -> None:
    """SqlError for what no parser should see: text that is too long, or that no log or screen can show."""
    if not isinstance(sql, str):
        raise SqlError(shorten(type(sql).__name__), "SQL must be a str")
    if len(sql) > MAXIMUM_CHARACTERS:
        hint = f"at most {MAXIMUM_CHARACTERS:,} are accepted; bind long values with ?"
        raise SqlError(shorten(sql[:40]), f"the text has {len(sql):,} characters", hint)
    if "\0" in sql or not has_utf8(sql):
        raise SqlError(shorten(sql[:40]), "the text contains a NUL character or a lone surrogate", "remove it")


@contextmanager
def parsing(sql: str, accepted: str) -> Iterator[None]:
    """Turn what the parser raises into SqlErrors.

    It is not ours, and the text is a stranger's: sqlglot has been seen to raise AttributeError, TypeError and the like
    on nonsense. Whatever it trips over, the text is outside our language.
    """
    try:
        yield
    except HullcastError:
        raise
    except TokenError as error:
        raise SqlError(
            shorten(sql[-40:]), "a quote or comment is not closed", "close every quote and comment"
        ) from error
    except ParseError as error:
        details = error.errors[0] if error.errors else {}
        where = f" (line {details['line']}, column {details['col']})" if "line" in details else ""
        reason = f"{_in_words(details.get('description') or '')}{where}"
        raise SqlError(shorten(str(details.get("highlight") or sql)), reason, accepted) from error
    except RecursionError as error:
        raise SqlError(shorten(sql), "the statement is nested too deeply", accepted) from error
    except Exception as error:
        raise SqlError(shorten(sql), "it cannot be parsed", accepted) from error


def _in_words(description: str) -> str:
    """What sqlglot says of a text, without the names of its classes."""
    if description.startswith("Required keyword"):
        return "something is missing here"
    if description.startswith("Invalid expression"):
        return "this was not expected here"
    return description or "it cannot be parsed"


def _tokens(sql: str, maximum: int) -> list[Token]:
    check_text(sql)
    with parsing(sql, ""):
        tokens = _DIALECT.tokenize(sql)
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
            raise SqlError(token.text, reason, "conditions joined by AND need none")


def _parse(tokens: list[Token], sql: str, grammar: str) -> exp.Expr:
    with parsing(sql, grammar):
        trees = _Parser(dialect=_DIALECT).parse(tokens, sql)
    tree = trees[0] if len(trees) == 1 else None
    if tree is None:
        raise SqlError(shorten(sql), "it is not one statement", "pass statements one at a time")
    tree.meta[_SOURCE] = (sql, tokens)
    return tree
