"""Remove passwords and tokens from text before it is printed, logged, sent or written to disk.

    redact_secrets("postgresql://ada:s3cret@host/db")     postgresql://ada:***@host/db

Passwords in URLs are masked. So is the value of every environment variable with a name such as `..._PASSWORD`,
`..._TOKEN` or `..._KEY`, wherever it occurs in the text, also URL-encoded or as `repr` and JSON write it.
`split_credentials` takes the login out of a server's URL, because MLflow reads it from environment variables.
"""

import json
import os
import re
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "***"
MIN_SECRET_LENGTH = 6  # characters; masking shorter values would mask ordinary words
MIN_MIXED_LENGTH = 8  # characters; from here on a secret with digits or underscores is masked inside of words too
MIN_LETTERS_LENGTH = 12  # characters; from here on a secret of letters only is masked inside of words too
# The login ends at the last @. In an HTTP URL the path may contain an @; in other URLs the password may contain a /.
WEB_LOGIN = re.compile(r"(?P<scheme>\bhttps?://)(?P<user>[^\s/@:'\"]*)(?P<rest>:[^\s/'\"]*)?@", re.IGNORECASE)
OTHER_LOGIN = re.compile(
    r"(?P<scheme>\b(?!https?:)[a-z][a-z0-9+.-]*://)(?P<user>[^\s/@:'\"]*)(?P<rest>:[^\s'\"]*)@", re.IGNORECASE
)
KEY_NAMES = "(?:api|access|account|private)_?key"
QUERY_SECRET = re.compile(
    rf"((?:^|[?&;\s])[\w-]*(?:password|passwd|pwd|secret|token|credential|signature|sig|{KEY_NAMES})=)[^&;\s'\"]+",
    re.IGNORECASE,
)
SECRET_VARIABLE = re.compile(
    rf"(?:password|passwd|passphrase|secret|token|credentials?|connection_string|{KEY_NAMES})(?:$|_)"
    r"|_(?:pass|pwd|pat|key)$|UR[IL]$|^HQLT_STORE$",
    re.IGNORECASE,
)


def redact_secrets(text: str) -> str:
    """Return the text with passwords, tokens and secrets of the environment replaced by ***."""
    for pattern in (WEB_LOGIN, OTHER_LOGIN):
        text = pattern.sub(mask_password, text)
    text = QUERY_SECRET.sub(rf"\1{MASK}", text)
    for secret in sorted(collect_environment_secrets(), key=len, reverse=True):
        literal = re.escape(secret)
        text = re.sub(rf"(?<!\w){literal}(?!\w)" if may_be_word(secret) else literal, MASK, text)
    return text


def may_be_word(secret: str) -> bool:
    """Return whether a secret may be part of an ordinary word, as the password `postgres` is of `postgresql`."""
    if re.search(r"\W", secret):
        return False
    return len(secret) < (MIN_LETTERS_LENGTH if secret.isalpha() else MIN_MIXED_LENGTH)


def mask_password(match: re.Match[str]) -> str:
    """Keep the user name and mask the password. In an HTTP URL without a password the user name is a token: mask it."""
    return f"{match['scheme']}{match['user']}:{MASK}@" if match["rest"] else f"{match['scheme']}{MASK}@"


def collect_environment_secrets() -> set[str]:
    """Return the secrets in environment variables, in all their spellings."""
    return {
        secret
        for name, value in os.environ.items()
        if SECRET_VARIABLE.search(name)
        for secret in iter_secret_spellings(name, value)
    }


def iter_secret_spellings(name: str, value: str) -> Iterator[str]:
    """Yield the secret in a variable, plain, URL-encoded, and as `repr` and JSON write it.

    The secret is the password if the value is a URL, else all of the value.
    """
    secret = (
        extract_password(value) if "://" in value else "" if name.upper().endswith(("URI", "URL", "STORE")) else value
    )
    url_spellings = {secret, quote(secret, safe=""), quote_plus(secret), unquote(secret)}
    escaped = {*iter_escaped(secret), *iter_escaped(unquote(secret))}
    twice_escaped = {spelling for text in escaped for spelling in iter_escaped(text)}  # JSON that contains a `repr`
    for spelling in {*url_spellings, *escaped, *twice_escaped}:
        if len(spelling) >= MIN_SECRET_LENGTH:
            yield spelling


def iter_escaped(secret: str) -> Iterator[str]:
    """Yield a text as it stands between the quotes of `repr` and of JSON, with and without ASCII escapes."""
    for literal in (repr(secret), ascii(secret), json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        yield literal[1:-1]
    # `repr` escapes ' only if the text around the secret contains " as well
    for literal in (repr(f'"{secret}'), ascii(f'"{secret}')):
        yield literal[2:-1]


def extract_password(url: str) -> str:
    """Return the password in a URL, without decoding it, or ""."""
    try:
        return urlsplit(url).password or ""
    except ValueError:  # not a valid URL
        return ""


class ServerCredentials(NamedTuple):
    """The URL of a server without its login, and the login."""

    url: str
    user: str | None = None
    password: str | None = None


def split_credentials(url: str) -> ServerCredentials:
    """Split the login from an HTTP URL. Other URLs stay complete: database drivers read the login from the URL."""
    match = WEB_LOGIN.match(url)
    if match is None:
        return ServerCredentials(url)
    return ServerCredentials(
        match["scheme"] + url[match.end() :], unquote(match["user"]), unquote((match["rest"] or ":")[1:])
    )


def has_credentials(url: str) -> bool:
    """Return whether the URL contains a secret."""
    return redact_secrets(url) != url


def print_redacted_traceback(
    error_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print a traceback without secrets. For sys.excepthook: exception messages may contain a password."""
    sys.stderr.write(redact_secrets("".join(traceback.format_exception(error_type, error, trace))))


def first_error_line(error: BaseException) -> str:
    """Return the first line of an error message, without secrets and at most 300 characters long."""
    lines = redact_secrets(str(error)).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300].rstrip(".")
