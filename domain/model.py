"""The base of every word in the domain: an immutable, strict pydantic model."""

from pydantic import BaseModel, ConfigDict


class Word(BaseModel):
    """An immutable value. A field that nobody knows is an error, so that a typo is seen where it was made."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Message(BaseModel):
    """An immutable value that crosses a version boundary (Temporal history, the wire).

    Unknown fields are ignored, so that an older worker can read what a newer one wrote; new fields get defaults.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")
