"""What must not be told: passwords and tokens, wherever a text may hold one.

    scrubbed("postgresql://ada:s3cret@host/db")     postgresql://ada:***@host/db

A text is scrubbed before it is printed, logged, sent or written to disk: addresses lose their passwords, and whatever
the environment holds under a name that says so (`..._PASSWORD`, `..._TOKEN`, ...) is blotted out, also where it stands
alone.  `parted` takes the login out of a server's address, so that it goes where MLflow looks for it: the environment.
"""

import os
import re
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple
from urllib.parse import quote, quote_plus, unquote, urlsplit

BLOT = "***"
SHORTEST = 6  # letters of a secret: a shorter value would blot out words of the text
# up to the last @; in a web address a path may hold one too, elsewhere a password may hold a /
WEB_LOGIN = re.compile(r"(?P<scheme>\bhttps?://)(?P<user>[^\s/@:'\"]*)(?P<rest>:[^\s/'\"]*)?@", re.IGNORECASE)
LOGIN = re.compile(
    r"(?P<scheme>\b(?!https?:)[a-z][a-z0-9+.-]*://)(?P<user>[^\s/@:'\"]*)(?P<rest>:[^\s'\"]*)@", re.IGNORECASE
)
KEYS = "(?:api|access|account|private)_?key"
IN_QUERY = re.compile(
    rf"((?:^|[?&;\s])[\w-]*(?:password|passwd|pwd|secret|token|credential|signature|sig|{KEYS})=)[^&;\s'\"]+",
    re.IGNORECASE,
)
NAME = re.compile(
    rf"(?:password|passwd|passphrase|secret|token|credentials?|connection_string|{KEYS})(?:$|_)|UR[IL]$|^HQLT_STORE$",
    re.IGNORECASE,
)


def scrubbed(text: str) -> str:
    """The same text without secrets."""
    for pattern in (WEB_LOGIN, LOGIN):
        text = pattern.sub(without_password, text)
    text = IN_QUERY.sub(rf"\1{BLOT}", text)
    for secret in sorted(known(), key=len, reverse=True):  # as a word: `postgres` must not be blotted out of postgresql
        text = re.sub(rf"(?<!\w){re.escape(secret)}(?!\w)", BLOT, text)
    return text


def without_password(found: re.Match[str]) -> str:
    """Of an address, who logs in stays; who logs in to a web server without a password has a token for a name."""
    return f"{found['scheme']}{found['user']}:{BLOT}@" if found["rest"] else f"{found['scheme']}{BLOT}@"


def known() -> set[str]:
    """The secrets of the environment, also as they are written in an address."""
    return {secret for name, value in os.environ.items() if NAME.search(name) for secret in spellings(name, value)}


def spellings(name: str, value: str) -> Iterator[str]:
    """Of a variable that holds an address, its password; of any other, all of it."""
    secret = password_of(value) if "://" in value else "" if name.upper().endswith(("URI", "URL", "STORE")) else value
    for spelled in {secret, quote(secret, safe=""), quote_plus(secret), unquote(secret)}:
        if len(spelled) >= SHORTEST:
            yield spelled


def password_of(address: str) -> str:
    """As it is written there; nothing, if there is none."""
    try:
        return urlsplit(address).password or ""
    except ValueError:  # what is no address has none
        return ""


class Parted(NamedTuple):
    """A server's address, and who logs in there."""

    address: str
    user: str | None = None
    password: str | None = None


def parted(uri: str) -> Parted:
    """The address of a web server without its login; any other is left alone, as its driver reads the login there."""
    found = WEB_LOGIN.match(uri)
    if found is None:
        return Parted(uri)
    return Parted(found["scheme"] + uri[found.end() :], unquote(found["user"]), unquote((found["rest"] or ":")[1:]))


def holds_password(uri: str) -> bool:
    """Whether somebody could read a secret there."""
    return scrubbed(uri) != uri


def tell_no_secret(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """For Python to end with (sys.excepthook): a traceback quotes messages, and those may hold a password."""
    sys.stderr.write(scrubbed("".join(traceback.format_exception(kind, error, trace))))
