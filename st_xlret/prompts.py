"""Old names, until their callers have moved to `st_xlret.encoding`."""

from st_xlret.encoding import PROMPT_NAMES, Role, embeds_roles_apart, prompt_name, role_prompt

__all__ = ["PROMPT_NAMES", "Role", "embeds_roles_apart", "prompt_name", "role_prompt"]
