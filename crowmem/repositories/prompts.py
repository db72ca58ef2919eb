"""Prompts: system prompt templates, each stored once."""

from __future__ import annotations

import hashlib

from crowmem.operation import M, Repository, operation
from crowmem.records import Prompt
from crowmem.statement import statement
from crowmem.values import MESSAGE_BYTES, check_text, now_text

GET = statement("prompt_get", Prompt)
ADD = statement("prompt_add")
FIND = statement("prompt_find")


class Prompts(Repository[M]):
    """System prompt templates."""

    @operation
    async def intern(self, template: str, name: str = "crow-default") -> str:
        """The id of exactly this template; it is stored at most once, whoever races for it.

        Args:
            template: the template's text; it alone decides.
            name: kept with the template when this call is the one that stores it.
        """
        text = check_text("template", template, empty=True, limit=MESSAGE_BYTES)
        title = check_text("name", name, empty=True)
        known = await self._value(FIND, template=text)  # another program may have stored it under an id of its own
        if known is not None:
            return str(known)
        new_id = f"prompt-{hashlib.sha256(text.encode()).hexdigest()[:32]}"
        await self._many(ADD, id=new_id, name=title, template=text, created_at=now_text())
        return new_id

    @operation
    async def get(self, prompt_id: str) -> Prompt | None:
        """One prompt, or None.

        Args:
            prompt_id: its id, as `intern` returned it.
        """
        return await self._one(GET, id=check_text("prompt_id", prompt_id, empty=True))  # type: ignore[no-any-return]
